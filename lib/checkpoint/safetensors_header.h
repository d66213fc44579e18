// The header of a .safetensors file, read from untrusted bytes and written.
//
// Format (huggingface/safetensors, README "Format"): 8 bytes little-endian length N, N bytes of JSON
// {"__metadata__": {"k": "v"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, then the data, to which the
// offsets are relative. Tensors cover the data without gaps or overlaps. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::checkpoint {

inline constexpr int64_t kMaxHeaderBytes = 100 << 20;
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxRank = 32;
inline constexpr size_t kMaxTensorNameBytes = 4096;

struct TensorEntry {
  std::string name;
  std::string dtype_name;              // as in the file: "F32", "F8_E4M3"
  std::optional<tensor::DType> dtype;  // nullopt: a type that this project cannot hold or does not know; listed and copied, not read
  tensor::Shape shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

// What this project calls a dtype of the format; nullopt: a type that it cannot hold, or none of the format.
std::optional<tensor::DType> StoredDType(absl::string_view name);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Parses the JSON of a header in front of `data_bytes` bytes of data. Memory use is proportional to the JSON.
// As the format's own reader: white space may stand in front, types that are not known are taken at the length that their offsets say, and
// further fields of a tensor are passed over.
// Errors: InvalidArgument for JSON of another form, duplicate names, shapes that overflow or disagree with the offsets, data that overlaps,
// leaves gaps or is missing; Unimplemented for what is beyond the limits above. The message names the tensor, not the file.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t data_bytes);

// A type that this project cannot hold: its name in the format, and the bytes of the whole tensor.
struct ForeignType {
  std::string dtype_name;
  int64_t bytes = 0;
};

// What is to be written: a type and a name.
struct TensorSpec {
  std::string name;
  tensor::TensorType type;
  std::optional<ForeignType> foreign = std::nullopt;  // then only the shape of `type` counts

  int64_t bytes() const { return foreign ? foreign->bytes : static_cast<int64_t>(type.bytes()); }
};

// Sorts `specs` into the order in which their data must follow (wide types first, so that every tensor is aligned to its elements; then by
// name) and returns length and JSON, padded so that the data begins at a multiple of 8.
// Errors: InvalidArgument for an empty, overlong, reserved or duplicate name or a negative extent.
absl::StatusOr<std::string> FormatSafetensorsHeader(std::vector<TensorSpec>& specs, const std::map<std::string, std::string>& metadata);

}  // namespace fusionllm::checkpoint
