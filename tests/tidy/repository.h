// Reads the repository for the lint.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

// Paths of the files that git tracks or would add (so neither build output nor anything else it ignores), from `root`.
// Blocks on a `git` process; an error says what it answered.
absl::StatusOr<std::set<std::string>> ListFiles(const std::string& root);

// The text of a file. Files above 4 MiB are refused: nothing the lint reads is so large.
absl::StatusOr<SourceFile> ReadFile(const std::string& root, const std::string& path);

// C++, scripts, build files and prose: what the rules about text apply to. Data files (goldens, pictures) are not.
bool IsText(absl::string_view path);

}  // namespace fusionllm::tidy
