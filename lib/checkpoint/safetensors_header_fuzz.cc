// The JSON in front of a safetensors file's data, of which there are as many bytes as the first byte of the input says.
#include "lib/base/testing/fuzz.h"
#include "lib/checkpoint/safetensors_header.h"

namespace fusionllm::checkpoint {
namespace {

std::string SeedOf(std::vector<TensorSpec> specs, const std::map<std::string, std::string>& metadata) {
  size_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.type.bytes();
  FUZZ_CHECK(bytes < 256);
  return static_cast<char>(bytes) + FormatSafetensorsHeader(specs, metadata)->substr(8);
}

std::vector<std::string> Seeds() {
  using tensor::DType;
  return {SeedOf({{"transformer.h.0.attn.c_attn.weight", {DType::kF32, {2, 3}}}, {"b", {DType::kF16, {7}}}, {"c", {DType::kU8, {}}}},
                 {{"format", "pt"}}),
          SeedOf({{"empty", {DType::kI64, {0, 5}}}, {"é", {DType::kBF16, {3, 1, 1}}}}, {})};
}

std::vector<std::string> Words() {
  return {"\"dtype\":\"F64\"",
          "\"shape\":[]",
          "\"data_offsets\":[0,0]",
          "\"__metadata__\":{}",
          "\"F8_E4M3\"",
          "4294967296",
          "{",
          "}",
          "[",
          "]",
          ","};
}

bool Accepts(absl::string_view input) {
  if (input.empty()) return false;
  const int64_t data_bytes = static_cast<unsigned char>(input[0]);
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(input.substr(1), data_bytes);
  if (!header.ok()) {
    FUZZ_CHECK(!header.status().message().empty());
    return false;
  }
  int64_t covered = 0;
  bool writable = true;
  std::vector<TensorSpec> specs;
  for (const TensorEntry& entry : header->tensors) {
    FUZZ_CHECK(entry.begin == covered && entry.end >= entry.begin);
    covered = entry.end;
    writable &= entry.dtype.has_value();
    if (!entry.dtype.has_value()) continue;
    specs.push_back({entry.name, {*entry.dtype, entry.shape}});
    FUZZ_CHECK(static_cast<int64_t>(specs.back().type.bytes()) == entry.bytes());
  }
  FUZZ_CHECK(covered == data_bytes);
  if (!writable) return true;
  const absl::StatusOr<std::string> text = FormatSafetensorsHeader(specs, header->metadata);
  FUZZ_CHECK(text.ok());
  FUZZ_CHECK(ParseSafetensorsHeader(absl::string_view(*text).substr(8), data_bytes)->tensors.size() == specs.size());
  return true;
}

}  // namespace
}  // namespace fusionllm::checkpoint

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {checkpoint::Seeds, checkpoint::Words, checkpoint::Accepts}; }
