// What takes the place of an op that other frameworks have and this one has not. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::opdag {

// For an op type as PyTorch, ONNX or a paper calls it: the op of another name ("did you mean 'linear'?"), or how it is made of others
// ("write gate = sigmoid(x), then y = mul(x, gate)"). Empty: the name is unknown.
std::string HintForOp(absl::string_view type);

}  // namespace fusionllm::opdag
