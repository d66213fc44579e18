#include "lib/kube/auth/named_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status Wrong(const std::string& entry, absl::string_view field, absl::string_view what) {
  return OfEntry(entry, absl::InvalidArgumentError(absl::StrCat(field, ": ", what)));
}

absl::Status CheckFile(const std::string& entry, absl::string_view field, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status read = ReadSmallFile(path, kMaxFileBytes).status();
  return read.ok() ? read : Wrong(entry, field, read.message());
}

// Empty: it can be run. As posix_spawnp() looks for it.
std::string WhyNotRun(const std::string& command) {
  const auto try_it = [](const std::string& path) {
    std::error_code error;
    if (access(path.c_str(), X_OK) != 0) return errno;
    return std::filesystem::is_regular_file(path, error) ? 0 : EACCES;
  };
  if (command.find('/') != std::string::npos) {
    const int error = try_it(command);
    return error == 0 ? "" : std::strerror(error);
  }
  const char* const listed = std::getenv("PATH");
  const std::vector<std::string> folders = absl::StrSplit(listed == nullptr ? "/bin:/usr/bin" : listed, ':');
  int error = ENOENT;
  for (const std::string& folder : folders) {
    const int one = try_it(absl::StrCat(folder.empty() ? "." : folder, "/", command));
    if (one == 0) return "";
    if (one == EACCES) error = one;
  }
  return error == ENOENT ? "there is no such program in $PATH" : std::strerror(error);
}

}  // namespace

absl::Status CheckNamedFiles(const ClientConfig& config) {
  const std::string& user = config.user_entry;
  FUSIONLLM_RETURN_IF_ERROR(CheckFile(config.cluster_entry, "certificate-authority", config.ca.path));
  FUSIONLLM_RETURN_IF_ERROR(CheckFile(user, "client-certificate", config.certificate.path));
  FUSIONLLM_RETURN_IF_ERROR(CheckFile(user, "client-key", config.key.path));
  if (config.exec.has_value()) {  // it goes before the others
    const std::string why = WhyNotRun(config.exec->command);
    if (why.empty()) return absl::OkStatus();
    const std::string& hint = config.exec->install_hint;
    return Wrong(user, "exec.command",
                 absl::StrCat("cannot run ", config.exec->command, ": ", why, hint.empty() ? "" : ". ", hint.substr(0, 500)));
  }
  if (config.token_file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadSmallFile(config.token_file, kMaxFileBytes);
  if (!text.ok()) return Wrong(user, "tokenFile", text.status().message());
  const absl::string_view token = absl::StripAsciiWhitespace(*text);
  if (token.empty()) return Wrong(user, "tokenFile", absl::StrCat(config.token_file, " is empty"));
  return IsToken(token) ? absl::OkStatus() : Wrong(user, "tokenFile", absl::StrCat(config.token_file, " ", kInvalidTokenMessage));
}

}  // namespace fusionllm::kube
