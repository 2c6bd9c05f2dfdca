#include "cli/jobfile/values.hpp"

#include <gtest/gtest.h>

namespace tutti::jobfile {
namespace {

template <class Parsed>
std::string why(const Parsed& parsed) {
  return parsed ? "fine" : parsed.error().message();
}

TEST(Values, Counts) {
  EXPECT_EQ(*parse_count("17", {0, 20}), 17);
  EXPECT_EQ(why(parse_count("21", {0, 20})), "21 is more than 20");
  EXPECT_EQ(why(parse_count("0", {1, 20})), "0 is less than 1");
  for (const char* text : {"", "-1", "+1", "1x", " 1", "1234567890"})
    EXPECT_EQ(why(parse_count(text, {})), "'" + std::string(text) + "' is not a whole number");
}

TEST(Values, RankCounts) {
  using Counts = std::vector<std::int32_t>;
  EXPECT_EQ(*parse_rank_counts("8"), Counts{8});
  EXPECT_EQ(*parse_rank_counts("4:7"), (Counts{7, 6, 5, 4}));
  EXPECT_EQ(*parse_rank_counts("4:4"), Counts{4});
  EXPECT_EQ(*parse_rank_counts("16,8,1"), (Counts{16, 8, 1}));
  EXPECT_EQ(parse_rank_counts("1:256")->size(), sched::rank_counts_max);
  EXPECT_EQ(*parse_rank_counts("100000"), Counts{100'000});
}

TEST(Values, BadRankCounts) {
  EXPECT_EQ(why(parse_rank_counts("16:4")), "'16:4' is not a range of ranks");
  EXPECT_EQ(why(parse_rank_counts("8,16")), "16 comes after 8");
  EXPECT_EQ(parse_rank_counts("8,16").error().remedy(), "write the largest number of ranks first: 16,8,4");
  EXPECT_EQ(why(parse_rank_counts("8,8")), "8 comes after 8");
  EXPECT_EQ(why(parse_rank_counts("0:4")), "0 is less than 1");
  EXPECT_EQ(why(parse_rank_counts("4,0")), "0 is less than 1");
  EXPECT_EQ(why(parse_rank_counts("1:100001")), "100001 is more than 100000");
  for (const char* text : {"", "8,", ",8", "8:", "4:8:12", "8,4:2", "x", "-4", "4 8"})
    EXPECT_NE(why(parse_rank_counts(text)).find("is not a whole number"), std::string::npos) << text;
  EXPECT_EQ(why(parse_rank_counts("1:257")), "a gang names at most 256 numbers of ranks");
  std::string many = "1000";
  for (int count = 999; count > 999 - 256; --count) many += "," + std::to_string(count);
  EXPECT_EQ(why(parse_rank_counts(many)), "a gang names at most 256 numbers of ranks");
}

TEST(Values, GpuShares) {
  EXPECT_EQ(*parse_gpu_share("0"), 0);
  EXPECT_EQ(*parse_gpu_share("0.25"), 250);
  EXPECT_EQ(*parse_gpu_share("0.5"), 500);
  EXPECT_EQ(*parse_gpu_share("0.001"), 1);
  EXPECT_EQ(*parse_gpu_share("0.1250"), 125);
  EXPECT_EQ(*parse_gpu_share("1"), 1000);
  EXPECT_EQ(*parse_gpu_share("2.0"), 2000);
  EXPECT_EQ(*parse_gpu_share("1000"), 1'000'000);
  for (const char* text : {"", ".", ".5", "1.", "a", "-1", "1e3", "0.0001", "1.5", "0.2.5"})
    EXPECT_EQ(why(parse_gpu_share(text)), "'" + std::string(text) + "' is not a number of GPUs");
  EXPECT_EQ(why(parse_gpu_share("1001")), "1001 is more than 1000");
  EXPECT_EQ(parse_gpu_share("1.5").error().remedy(), "more than one GPU per rank must be whole GPUs");
}

TEST(Values, EveryFormOfTime) {
  EXPECT_EQ(*parse_time_limit("2h"), 2h);
  EXPECT_EQ(*parse_time_limit("1h30m"), 90min);
  EXPECT_EQ(*parse_time_limit("90"), 90min);
  EXPECT_EQ(*parse_time_limit("90:30"), 90min + 30s);
  EXPECT_EQ(*parse_time_limit("36:15:20"), 36h + 15min + 20s);
  EXPECT_EQ(*parse_time_limit("2-12"), 60h);
  EXPECT_EQ(*parse_time_limit("2-12:30"), 60h + 30min);
  EXPECT_EQ(*parse_time_limit("2-12:30:05"), 60h + 30min + 5s);
  EXPECT_EQ(*parse_time_limit("0"), 0s);
  EXPECT_EQ(*parse_time_limit("3650d"), time_limit_max);
}

TEST(Values, BadTimes) {
  for (const char* text : {"", ":", "1:2:3:4", "-5", "5-", "1-2-3", "1:60", "1:60:00", "1-24", "1-2:60",
                           "two hours", "1h:30", "2 h", "99999-0", "1234567890"})
    EXPECT_EQ(why(parse_time_limit(text)), "'" + std::string(text) + "' is not a time limit");
  EXPECT_EQ(parse_time_limit("1:75").error().remedy(), "'75' is more than 59");
  EXPECT_EQ(parse_time_limit("1000000:00:00").error().remedy(), "'1000000' is more than 999999");
  EXPECT_EQ(why(parse_time_limit("3651d")), "3651d is more than 3650d");
  EXPECT_EQ(why(parse_time_limit("3650-1")), "3650d1h is more than 3650d");
  EXPECT_EQ(why(parse_time_limit("999999:00:00")), "41666d15h is more than 3650d");
}

TEST(Values, GraceAndMemory) {
  EXPECT_EQ(*parse_grace("30s"), 30s);
  EXPECT_EQ(why(parse_grace("25h")), "1d1h is more than 1d");
  EXPECT_EQ(why(parse_grace("30")), "'30' is not a duration");
  EXPECT_EQ(*parse_memory("16G"), gib(16));
  EXPECT_EQ(why(parse_memory("65T")), "65 TiB is more than 64 TiB");
  EXPECT_EQ(why(parse_memory("much")), "'much' is not a size");
  EXPECT_EQ(why(parse_memory("16")), "16 B is less than 1 MiB");
  EXPECT_EQ(*parse_memory("0"), Bytes(0));
  EXPECT_EQ(*parse_memory("1M"), mib(1));
}

TEST(Values, EveryFormOfArray) {
  EXPECT_EQ(*parse_array("7"), (ArrayRange{{7}, 0}));
  EXPECT_EQ(*parse_array("0-3"), (ArrayRange{{0, 1, 2, 3}, 0}));
  EXPECT_EQ(*parse_array("0-3%2"), (ArrayRange{{0, 1, 2, 3}, 2}));
  EXPECT_EQ(*parse_array("0-10:4"), (ArrayRange{{0, 4, 8}, 0}));
  EXPECT_EQ(*parse_array("5,1,3"), (ArrayRange{{1, 3, 5}, 0}));
  EXPECT_EQ(*parse_array("1,10-12,20-24:2%3"), (ArrayRange{{1, 10, 11, 12, 20, 22, 24}, 3}));
  EXPECT_EQ(parse_array("0-9999")->indices.size(), 10'000U);
  EXPECT_EQ(parse_array("0-999999:100")->indices.size(), 10'000U);
}

TEST(Values, BadArrays) {
  for (const char* text : {"", ",", "1,", "a", "3-1", "1-", "-1", "1-2-3", "0-9:0", "0-9:", "3:2", "0-9%",
                           "0-9%0", "0-9%x", "0-9%2%3", "%3", "1 2"})
    EXPECT_EQ(why(parse_array(text)), "'" + std::string(text) + "' is not an array");
  EXPECT_EQ(why(parse_array("0-10000")), "an array has at most 10000 elements");
  EXPECT_EQ(why(parse_array("0-5000,6000-12000")), "an array has at most 10000 elements");
  EXPECT_EQ(why(parse_array("1000000")), "1000000 is more than 999999");
  EXPECT_EQ(why(parse_array("0-5,3")), "the element 3 stands here twice");
}

TEST(Values, Jobs) {
  EXPECT_EQ(*parse_job("42"), cluster::JobId(42));
  for (const char* text : {"", "0", "x", "-1", "1.5"})
    EXPECT_EQ(why(parse_job(text)), "'" + std::string(text) + "' is not the number of a job");
}

TEST(Values, Names) {
  EXPECT_EQ(*parse_name("train GPT-2_v1.5"), "train GPT-2_v1.5");
  EXPECT_EQ(why(parse_name("")), "a name is missing");
  EXPECT_EQ(why(parse_name("a/b")), "'a/b' is not a name");
  EXPECT_TRUE(parse_name(std::string(128, 'x')).ok());
  EXPECT_EQ(why(parse_name(std::string(129, 'x'))), "a name has at most 128 bytes");
  EXPECT_EQ(*parse_word("research.a"), "research.a");
  EXPECT_EQ(why(parse_word("a b")), "'a b' is not a name");
  EXPECT_EQ(*parse_queue("research/vision"), "research/vision");
  for (const char* text : {"/research", "research/", "a//b", "a b", ""}) EXPECT_FALSE(parse_queue(text).ok());
  EXPECT_EQ(as_name("a/b+c.sh"), "a_b_c.sh");
  EXPECT_EQ(as_name(""), "job");
  EXPECT_EQ(as_name(std::string(200, 'x')).size(), 128U);
}

TEST(Values, Paths) {
  EXPECT_EQ(*parse_path("out/%j.log"), "out/%j.log");
  EXPECT_EQ(why(parse_path("")), "a path is missing");
  EXPECT_EQ(why(parse_path(std::string(4096, 'x'))), "a path has at most 4095 bytes");
  EXPECT_EQ(why(parse_path(std::string("a\0b", 3))), "a path holds no NUL bytes");
}

TEST(Values, Env) {
  for (const char* entry : {"A=1", "_a9=", "A=b=c", "A= x "}) EXPECT_TRUE(check_env(entry).ok()) << entry;
  for (const char* entry : {"", "A", "=1", "9A=1", "A B=1", "A-B=1"})
    EXPECT_EQ(why(check_env(entry)), "'" + std::string(entry) + "' is not of the form K=V");
  EXPECT_EQ(why(check_env(std::string("A=\0", 3))), "A holds a NUL byte");
}

}  // namespace
}  // namespace tutti::jobfile
