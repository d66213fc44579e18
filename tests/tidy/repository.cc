#include "tests/tidy/repository.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::tidy {

absl::StatusOr<std::set<std::string>> ListFiles(const std::string& root) {
  if (absl::StrContains(root, "'")) return absl::InvalidArgumentError(absl::StrCat("a quote in the path of the repository: ", root));
  const std::string command = absl::StrCat("git -C '", root, "' ls-files --cached --others --exclude-standard -z 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("cannot start git");
  std::string output;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("the lint needs a git checkout; `", command, "` failed: ", output));
  }
  std::set<std::string> files;
  for (absl::string_view name : absl::StrSplit(output, '\0', absl::SkipEmpty())) {
    const std::string path(name);
    // A file that is deleted but not yet committed is still in git's list.
    if (std::filesystem::is_regular_file(std::filesystem::path(root) / path)) files.insert(path);
  }
  return files;
}

absl::StatusOr<SourceFile> ReadFile(const std::string& root, const std::string& path) {
  constexpr uintmax_t kMaxBytes = 4 << 20;
  const std::filesystem::path full = std::filesystem::path(root) / path;
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(full, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  if (bytes > kMaxBytes) return absl::ResourceExhaustedError(absl::StrCat(path, ": ", bytes, " bytes, the lint reads at most ", kMaxBytes));
  std::ifstream in(full, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  return SourceFile{path, text.str()};
}

bool IsText(absl::string_view path) {
  for (absl::string_view suffix : {".h", ".cc", ".md", ".cmake", ".sh", ".yaml", ".yml", ".proto", ".dag", ".html", "CMakeLists.txt",
                                   "CMakePresets.json", "Makefile", "Dockerfile", "packages.txt", "layers.txt", ".ci/run"}) {
    if (absl::EndsWith(path, suffix)) return true;
  }
  return false;
}

}  // namespace fusionllm::tidy
