#include "lib/checkpoint/tensor_fill.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/checkpoint/convert.h"

namespace fusionllm::checkpoint {

using tensor::DType;

namespace {

bool Widens(const TensorEntry& stored, DType into) {
  return into == DType::kF32 && (stored.dtype == DType::kF16 || stored.dtype == DType::kBF16);
}

}  // namespace

bool CanFill(const TensorEntry& stored, const tensor::TensorType& into) {
  return stored.shape == into.shape && (stored.dtype == into.dtype || Widens(stored, into.dtype));
}

absl::StatusOr<TensorFill> TensorFill::Create(absl::string_view where, const TensorEntry& stored, const tensor::TensorView& into) {
  const bool widens = Widens(stored, into.type.dtype);
  if (!CanFill(stored, into.type)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", stored.name, "' of ", where, " is ", stored.dtype_name,
                                                   stored.shape.ToString(), " but ", into.type.ToString(), " is wanted"));
  }
  if (!widens) return TensorFill(into.bytes(), static_cast<int64_t>(into.type.bytes()), nullptr);
  return TensorFill(into.bytes(), 2 * into.type.elements(), stored.dtype == DType::kF16 ? FloatFromF16 : FloatFromBF16);
}

absl::Status TensorFill::Append(std::span<const std::byte> piece) {
  const auto bytes = static_cast<int64_t>(piece.size());
  if (bytes > wanted_ - filled_) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of ", wanted_, " bytes was given ", filled_ + bytes));
  }
  if (widens()) {
    if (bytes % 2 != 0) return absl::InvalidArgumentError("a piece of a tensor ends inside of an element");
    auto* out = reinterpret_cast<float*>(into_.data()) + filled_ / 2;
    for (int64_t at = 0; at < bytes; at += 2) {
      uint16_t bits = 0;
      std::memcpy(&bits, piece.data() + at, sizeof bits);
      *out++ = widen_(bits);
    }
  } else if (!piece.empty()) {
    std::memcpy(into_.data() + filled_, piece.data(), piece.size());
  }
  filled_ += bytes;
  return absl::OkStatus();
}

}  // namespace fusionllm::checkpoint
