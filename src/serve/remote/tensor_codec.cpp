#include "serve/remote/tensor_codec.hpp"

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "serve/remote/packing.hpp"

namespace tutti::serve::remote {
namespace {

constexpr std::size_t packed_tensor_bytes_min = 25;

}  // namespace

std::string encode(const ProgramCard& card) {
  Writer writer;
  writer.put_text(json::write(write_signature(card.signature)));
  writer.put_text(card.about);
  writer.put_text(card.version);
  return writer.take();
}

std::string encode(const std::vector<Tensor>& tensors) {
  Writer writer;
  writer.put(static_cast<std::uint64_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    writer.put(static_cast<std::uint8_t>(tensor.type));
    writer.put_text(tensor.name);
    writer.put_list(std::span<const std::int64_t>(tensor.shape));
    writer.put_text(tensor.bytes);
  }
  return writer.take();
}

Result<ProgramCard> decode_card(std::string_view bytes) {
  Reader reader(bytes);
  const std::string text = reader.get_text();
  ProgramCard card{.signature = {}, .about = reader.get_text(), .version = reader.get_text()};
  if (auto end = reader.end(); !end) return std::move(end).error();
  const auto root = json::parse(text);
  if (!root) return root.error();
  auto signature = read_signature(*root);
  if (!signature) return std::move(signature).error();
  card.signature = std::move(*signature);
  return card;
}

Result<std::vector<Tensor>> decode_tensors(std::string_view bytes) {
  Reader reader(bytes);
  std::vector<Tensor> tensors(reader.get_count(packed_tensor_bytes_min));
  for (Tensor& tensor : tensors) {
    const auto type = reader.get<std::uint8_t>();
    tensor.type = static_cast<DataType>(type);
    tensor.name = reader.get_text();
    tensor.shape = reader.get_list<std::int64_t>();
    tensor.bytes = reader.get_text();
    const auto wanted = type < data_types ? bytes_of(tensor.type, tensor.shape)
                                          : Result<std::uint64_t>(invalid("has no type that is known"));
    if (!wanted) return Error(wanted.error()).within(tensor.name);
    if (*wanted != tensor.bytes.size()) return failed("a tensor of a message is not whole");
  }
  if (auto end = reader.end(); !end) return std::move(end).error();
  return tensors;
}

}  // namespace tutti::serve::remote
