// Messages of bf16 tensors as they are: what comes before and around their payload, 2 bytes for each value, wherever the tensor lives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/codec.h"

namespace fusionllm::compression {

// Errors: InvalidArgument for too many elements.
absl::Status CheckBf16(size_t elements);
// *out: the header, and room for the payload behind it. Errors: CheckBf16's.
absl::Status BeginBf16(Direction direction, size_t elements, std::vector<std::byte>* out);
// The payload of a message of so many elements. Errors: DecodeBf16's.
absl::StatusOr<std::span<const std::byte>> ReadBf16(Direction direction, std::span<const std::byte> encoded, size_t elements);

}  // namespace fusionllm::compression
