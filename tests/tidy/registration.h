// Headers that no CMakeLists.txt names are never checked to compile on their own.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// Every header below lib/ is named, by its path from there, in the nearest CMakeLists.txt at or above its folder.
// `build_files`: the text of each CMakeLists.txt by its path; `files`: every path of the repository.
// Rule, by name: unlisted-header; a warning only where there is no CMakeLists.txt at all, as before a folder joins the build.
std::vector<Finding> CheckHeaderLists(const std::map<std::string, std::string>& build_files, const std::set<std::string>& files);

}  // namespace fusionllm::tidy
