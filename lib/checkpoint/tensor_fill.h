// Fills a tensor in memory with its stored bytes, which come piece by piece from a file or a connection. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/checkpoint/safetensors_header.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::checkpoint {

// Whether a tensor of this type can be filled with the stored one: shape and dtype are equal, or f32 comes from f16 or bf16.
bool CanFill(const TensorEntry& stored, const tensor::TensorType& into);

class TensorFill {
 public:
  // `into` has the shape and dtype of the stored tensor, or dtype f32 when it is stored as f16 or bf16; its memory outlives this. `where`
  // is named in errors. InvalidArgument when shape or dtype differ (names both).
  static absl::StatusOr<TensorFill> Create(absl::string_view where, const TensorEntry& stored, const tensor::TensorView& into);

  bool widens() const { return widen_ != nullptr; }
  // InvalidArgument for more bytes than the tensor has, or a piece that ends inside of an element.
  absl::Status Append(std::span<const std::byte> piece);
  bool full() const { return filled_ == wanted_; }

 private:
  TensorFill(std::span<std::byte> into, int64_t wanted, float (*widen)(uint16_t)) : into_(into), wanted_(wanted), widen_(widen) {}

  std::span<std::byte> into_;
  int64_t wanted_;  // stored bytes
  int64_t filled_ = 0;
  float (*widen_)(uint16_t);
};

}  // namespace fusionllm::checkpoint
