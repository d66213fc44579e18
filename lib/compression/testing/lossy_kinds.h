// The kinds of activations that a lossy codec may carry, for tests.
#pragma once

#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression::testing {

inline constexpr opdag::ActivationKind kLossyKinds[] = {opdag::ActivationKind::kInnerResidual, opdag::ActivationKind::kResidual,
                                                        opdag::ActivationKind::kAttentionInput, opdag::ActivationKind::kNormalized,
                                                        opdag::ActivationKind::kHidden};

}  // namespace fusionllm::compression::testing
