#include "lib/base/pluralize.h"

#include "absl/strings/str_cat.h"

namespace fusionllm::base {

std::string Pluralize(int64_t count, absl::string_view noun, absl::string_view plural) {
  if (count == 1 || plural.empty()) return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
  return absl::StrCat(count, " ", plural);
}

}  // namespace fusionllm::base
