// A .safetensors file as it lies on a disk, laid out over tensors in memory without a copy of them: for writing it, and for sending it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::checkpoint {

struct NamedTensor {
  std::string name;
  tensor::ConstTensorView view;
};

// The tensors must live as long as the image. Reads may run on several threads at once.
class SafetensorsImage {
 public:
  // Errors: those of FormatSafetensorsHeader.
  static absl::StatusOr<SafetensorsImage> Create(std::span<const NamedTensor> tensors,
                                                 const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  int64_t bytes() const { return bytes_; }
  int64_t tensor_bytes() const;                                         // without the header
  const std::vector<std::string>& tensors() const { return tensors_; }  // names, sorted

  // The file's bytes in order, in pieces of at most `limit` bytes. Ends with the first error that `take` returns.
  absl::Status ForEachPiece(size_t limit, const std::function<absl::Status(std::span<const std::byte>)>& take) const;

 private:
  SafetensorsImage() = default;

  std::string header_;
  std::vector<std::span<const std::byte>> data_;  // in the order of the file
  std::vector<std::string> tensors_;
  int64_t bytes_ = 0;
};

}  // namespace fusionllm::checkpoint
