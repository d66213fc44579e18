// Whether a text is well-formed XML, as far as our drawings use it: a declaration, elements, attributes in double quotes, text, the five
// named entities. For tests.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::report::testing {

// Empty when it is; else what is wrong and where.
std::string XmlProblem(absl::string_view text);

}  // namespace fusionllm::report::testing
