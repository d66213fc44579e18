// Top-k and masked messages put together from their parts, also those that no sender makes, such as a masked gradient of int4 values: for
// tests of decoders.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lib/compression/mask.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression::testing {

// A forward message with its mask; backward, the gradient under it. `kept`: mask.kept() numbers that a codec takes; any other ends the
// process.
std::vector<std::byte> TopKMessage(ValueKind values, Direction direction, const Mask& mask, std::span<const float> kept);

}  // namespace fusionllm::compression::testing
