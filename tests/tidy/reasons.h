// docs/reference/conditions-and-reasons.md explains every reason that the operator puts into conditions and events, and no other.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// C++ whose texts may get into a condition or an event: the operator's, without tests, fuzzers, and the load on it, and the list of what a
// broker tells.
bool MaySetReasons(absl::string_view path);

// A reason is a text among others: every string of those sources that is one word in CamelCase counts as one, unless `other_words` (one
// a line; '#' begins a comment) says that it is something else. The page explains what begins a row, in backquotes, of a table whose first
// column is called "reason": several names stand with commas between, and one that ends with "..." is any that begins so.
// Rule, by name: reasons (a word of the sources that is neither explained nor listed; one that is both; one of the page, or of the list,
// that no source has; a row that explains nothing).
std::vector<Finding> CheckReasons(const SourceFile& page, const std::vector<SourceFile>& sources, const SourceFile& other_words);

}  // namespace fusionllm::tidy
