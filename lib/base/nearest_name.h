// What a slip of the typing probably meant. Pure.
#pragma once

#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// Without upper and lower case, '_' and '-': "global_batch_size" and "globalBatchSize" are one name. Of the first 64 bytes.
std::string NormalizeName(absl::string_view text);

// The choice that a reader of `text` probably meant, or empty when none is near: folded names are compared, insertions, deletions,
// replacements and swaps of neighbours count 1 each, and at most a third of the characters may differ. Of equals the first.
std::string NearestName(absl::string_view text, std::span<const std::string> choices);

// Likewise; first the shortest that begins with the text, of three characters or more; where none is near as a whole, that of which some
// words in a row are near the text, or the other way round: "h100" is meant for "nvidia-h100-sxm", "gpt2-small" for "small". Words end at
// '-', '_', '.', '/' and spaces; of up to three characters they must be equal. Of equals the shortest, then the first.
std::string NearestNameOrPart(absl::string_view text, std::span<const std::string> choices);

}  // namespace fusionllm::base
