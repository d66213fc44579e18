// Element types of tensors, their sizes and their names in text forms and safetensors headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::tensor {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8 };

size_t SizeOf(DType dtype);           // bytes of one element
absl::string_view Name(DType dtype);  // "f32", "f16", "bf16", "i32", "i64", "u8"
bool IsFloating(DType dtype);
absl::StatusOr<DType> ParseDType(absl::string_view name);  // InvalidArgument names the text

}  // namespace fusionllm::tensor
