#include "comm/ptx.hpp"

#include <string_view>

namespace tutti::comm {
namespace {

// How a type is loaded into an accumulator, worked on and stored.
struct Words {
  std::string_view shift;  // log2 of its size
  std::string_view accumulator;
  std::string_view load;   // from [%address] to %value
  std::string_view store;  // from %sum to [%address]
  std::string_view suffix;
  std::string_view divide;
};

Words words_of(DataType type) {
  switch (type) {
    case DataType::f32:
      return {"2",
              ".f32",
              "ld.global.f32 %value, [%address];",
              "st.global.f32 [%address], %sum;",
              "f32",
              "cvt.rn.f32.u64 %divisor, %divide; div.rn.f32 %sum, %sum, %divisor;"};
    case DataType::f64:
      return {"3",
              ".f64",
              "ld.global.f64 %value, [%address];",
              "st.global.f64 [%address], %sum;",
              "f64",
              "cvt.rn.f64.u64 %divisor, %divide; div.rn.f64 %sum, %sum, %divisor;"};
    case DataType::f16:
      return {"1",
              ".f32",
              "ld.global.b16 %narrow, [%address]; cvt.f32.f16 %value, %narrow;",
              "cvt.rn.f16.f32 %narrow, %sum; st.global.b16 [%address], %narrow;",
              "f32",
              "cvt.rn.f32.u64 %divisor, %divide; div.rn.f32 %sum, %sum, %divisor;"};
    case DataType::bf16:
      // To the nearest, ties to even; a NaN stays one.
      return {
          "1",
          ".f32",
          "ld.global.u16 %wide, [%address]; shl.b32 %wide, %wide, 16; mov.b32 %value, %wide;",
          "mov.b32 %wide, %sum; shr.u32 %odd, %wide, 16; and.b32 %odd, %odd, 1; add.u32 %odd, %odd, 0x7fff;"
          " add.u32 %odd, %odd, %wide; shr.u32 %odd, %odd, 16; shr.u32 %wide, %wide, 16; or.b32 %wide, "
          "%wide, 0x40;"
          " testp.notanumber.f32 %nan, %sum; selp.u32 %wide, %wide, %odd, %nan; st.global.u16 [%address], "
          "%wide;",
          "f32",
          "cvt.rn.f32.u64 %divisor, %divide; div.rn.f32 %sum, %sum, %divisor;"};
    case DataType::i32:
      return {"2",
              ".s32",
              "ld.global.s32 %value, [%address];",
              "st.global.s32 [%address], %sum;",
              "s32",
              "cvt.u32.u64 %divisor, %divide; div.s32 %sum, %sum, %divisor;"};
    case DataType::i64:
      return {"3",
              ".s64",
              "ld.global.s64 %value, [%address];",
              "st.global.s64 [%address], %sum;",
              "s64",
              "mov.b64 %divisor, %divide; div.s64 %sum, %sum, %divisor;"};
    case DataType::u8:
      return {"0",
              ".u32",
              "ld.global.u8 %value, [%address];",
              "st.global.u8 [%address], %sum;",
              "u32",
              "and.b32 %sum, %sum, 0xff; cvt.u32.u64 %divisor, %divide; div.u32 %sum, %sum, %divisor;"};
  }
  return {};
}

std::string combine(Reduction reduction, const Words& words, bool floating) {
  const std::string suffix(words.suffix);
  switch (reduction) {
    // Rounded after each step: the compiler may not fuse it with anything.
    case Reduction::sum:
    case Reduction::average:
      return (floating ? "add.rn." : "add.") + suffix + " %sum, %sum, %value;";
    case Reduction::product:
      return (floating ? "mul.rn." : "mul.lo.") + suffix + " %sum, %sum, %value;";
    case Reduction::min:
      return "setp.lt." + suffix + " %better, %value, %sum; selp." + suffix + " %sum, %value, %sum, %better;";
    case Reduction::max:
      return "setp.gt." + suffix + " %better, %value, %sum; selp." + suffix + " %sum, %value, %sum, %better;";
  }
  return "";
}

// The length of the kernel's table.
static_assert(reduce_sources_max * 8 == 512);

}  // namespace

std::string reduce_ptx(DataType type, Reduction reduction) {
  const Words words = words_of(type);
  const bool floating = words.suffix.starts_with("f");
  const std::string shift(words.shift);
  const std::string accumulator(words.accumulator);
  std::string text = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry reduce(.param .align 8 .b8 p_table[512], .param .u32 p_sources, .param .u64 p_target,
                       .param .u64 p_count, .param .u64 p_divide)
{
  .reg .u64 %table, %target, %count, %divide, %index, %stride, %offset, %address, %entry;
  .reg .u32 %sources, %left, %thread, %threads, %block, %blocks, %wide, %odd;
  .reg .b16 %narrow;
  .reg .pred %done, %better, %nan, %whole;
)";
  text += "  .reg " + accumulator + " %sum, %value, %divisor;\n";
  text += R"(  mov.u64 %table, p_table;
  ld.param.u32 %sources, [p_sources];
  ld.param.u64 %target, [p_target];
  ld.param.u64 %count, [p_count];
  ld.param.u64 %divide, [p_divide];
  mov.u32 %thread, %tid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %index, %block, %threads;
  cvt.u64.u32 %offset, %thread;
  add.u64 %index, %index, %offset;
  mul.wide.u32 %stride, %blocks, %threads;
  setp.eq.u64 %whole, %divide, 0;
next:
  setp.ge.u64 %done, %index, %count;
  @%done bra end;
)";
  text += "  shl.b64 %offset, %index, " + shift + ";\n";
  text += R"(  mov.u64 %entry, %table;
  ld.param.u64 %address, [%entry];
  add.u64 %address, %address, %offset;
)";
  text += "  " + std::string(words.load) + "\n  mov.b" + (words.suffix.ends_with("64") ? "64" : "32") +
          " %sum, %value;\n";
  text += R"(  sub.u32 %left, %sources, 1;
more:
  setp.eq.u32 %done, %left, 0;
  @%done bra reduced;
  add.u64 %entry, %entry, 8;
  ld.param.u64 %address, [%entry];
  add.u64 %address, %address, %offset;
)";
  text += "  " + std::string(words.load) + "\n  " + combine(reduction, words, floating) + "\n";
  text += R"(  sub.u32 %left, %left, 1;
  bra more;
reduced:
  @%whole bra store;
)";
  text += "  " + std::string(words.divide) + "\n";
  text += R"(store:
  add.u64 %address, %target, %offset;
)";
  text += "  " + std::string(words.store) + "\n";
  text += R"(  add.u64 %index, %index, %stride;
  bra next;
end:
  ret;
}
)";
  return text;
}

std::string copy_ptx() {
  return R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry copy(.param .u64 p_target, .param .u64 p_source, .param .u64 p_count)
{
  .reg .u64 %target, %source, %count, %index, %stride, %offset, %address, %low, %high;
  .reg .u32 %thread, %threads, %block, %blocks;
  .reg .pred %done;
  ld.param.u64 %target, [p_target];
  ld.param.u64 %source, [p_source];
  ld.param.u64 %count, [p_count];
  mov.u32 %thread, %tid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %block, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %index, %block, %threads;
  cvt.u64.u32 %offset, %thread;
  add.u64 %index, %index, %offset;
  mul.wide.u32 %stride, %blocks, %threads;
next:
  setp.ge.u64 %done, %index, %count;
  @%done bra end;
  shl.b64 %offset, %index, 4;
  add.u64 %address, %source, %offset;
  ld.global.v2.u64 {%low, %high}, [%address];
  add.u64 %address, %target, %offset;
  st.global.v2.u64 [%address], {%low, %high};
  add.u64 %index, %index, %stride;
  bra next;
end:
  ret;
}
)";
}

}  // namespace tutti::comm
