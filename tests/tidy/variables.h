// e2e/README.md names every variable of the environment that the scripts of e2e/ take.
#pragma once

#include <vector>

#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// A script takes a variable where it says what holds without: "${NAME:-...}", "${NAME-...}". On the page the name stands in backquotes.
// HOME is everybody's.
// Rule, by name: variables (one that the page does not name).
std::vector<Finding> CheckVariables(const SourceFile& page, const std::vector<SourceFile>& scripts);

}  // namespace fusionllm::tidy
