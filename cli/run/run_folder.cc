#include "cli/run/run_folder.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"
#include "lib/security/executor_name.h"
#include "lib/security/join_token.h"
#include "lib/security/private_file.h"
#include "lib/security/renewal.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kRememberedBytesMax = 64 << 20;  // profiles of the largest topology have about 10 MB

constexpr char kAnotherFolder[] = "name another folder with --output";

absl::StatusOr<std::filesystem::path> AbsoluteFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (error || path.empty()) return absl::InvalidArgumentError(absl::StrCat("no folder for the output: \"", path, "\""));
  return absolute.has_filename() ? absolute : absolute.parent_path();  // "runs/a/" is "runs/a"
}

}  // namespace

absl::Status RunFolder::Check(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::filesystem::path absolute, AbsoluteFolder(path));
  return FolderLock::Check(absolute, kAnotherFolder);
}

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path) {
  std::error_code error;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::filesystem::path absolute, AbsoluteFolder(path));
  FUSIONLLM_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Acquire(absolute, kAnotherFolder));
  std::filesystem::create_directories(absolute / "logs", error);
  if (error) return base::AsBadInput(base::FileError(error.value(), "make the folder", (absolute / "logs").string()));
  return RunFolder(absolute, std::move(lock));
}

absl::Status RunFolder::WriteFile(absl::string_view name, absl::string_view content) const {
  return base::ReplaceFile(*this / name, content);
}

absl::Status RunFolder::WriteJob(const job::FusionJob& job, const std::optional<job::Topology>& topology) const {
  FUSIONLLM_RETURN_IF_ERROR(base::AsBadInput(WriteFile("job.yaml", job::ToYaml(job))));
  if (topology) return base::AsBadInput(WriteFile("topology.yaml", job::ToYaml(*topology)));
  std::error_code ignored;  // an earlier run in this folder may have had one
  std::filesystem::remove(*this / "topology.yaml", ignored);
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunFolder::WriteSecurity(const std::string& job_name, const std::vector<std::string>& devices,
                                                     const std::vector<std::string>& broker_hosts) const {
  const std::string folder = *this / "security";
  // Certificates of an earlier start must not be taken for those of this one.
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) return absl::InternalError(absl::StrCat("cannot empty ", folder, ": ", error.message()));
  security::CertificateAuthorityOptions authority_options;
  authority_options.common_name = std::string(absl::string_view(job_name).substr(0, 64));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto authority, security::CertificateAuthority::Create(authority_options));
  FUSIONLLM_RETURN_IF_ERROR(authority.Save(folder));
  for (const std::string& device : devices) FUSIONLLM_RETURN_IF_ERROR(security::CheckExecutorName(device));
  std::vector<std::string> names(std::begin(security::kServiceNames), std::end(security::kServiceNames));
  names.insert(names.end(), devices.begin(), devices.end());
  for (const std::string& name : names) {
    security::IssueOptions issue;
    if (name == "broker") issue.hosts = broker_hosts;
    FUSIONLLM_ASSIGN_OR_RETURN(const security::IssuedCertificate issued, authority.Issue(name, issue));
    FUSIONLLM_RETURN_IF_ERROR(
        security::WriteCredentials(folder, name, {authority.certificate_pem(), issued.certificate_pem, issued.private_key_pem}));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const security::JoinSecret secret, security::MakeJoinSecret());
  FUSIONLLM_ASSIGN_OR_RETURN(std::string token, security::MakeJoinToken(secret, authority.certificate_pem()));
  FUSIONLLM_RETURN_IF_ERROR(security::WritePrivateFile(folder + "/token", token));
  return token;
}

absl::Status RunFolder::RenewCertificates() const {
  const std::string folder = *this / "security";
  FUSIONLLM_ASSIGN_OR_RETURN(const auto authority, security::CertificateAuthority::Load(folder));
  return security::RenewFolder(authority, folder, absl::Now());
}

RunFolder::Snapshot RunFolder::TakeSnapshot() const {
  Snapshot earlier;
  for (const char* name : {"job.yaml", "topology.yaml", "profiles.json", "metrics.prom"}) {
    absl::StatusOr<std::string> text = base::ReadSmallFile(*this / name, kRememberedBytesMax);
    if (text.ok()) {
      earlier.files[name] = *std::move(text);
    } else if (absl::IsNotFound(text.status())) {
      earlier.files[name] = std::nullopt;
    }
  }
  return earlier;
}

void RunFolder::Restore(const Snapshot& earlier) const {
  for (const auto& [name, text] : earlier.files) {
    std::error_code ignored;
    if (text.has_value()) {
      (void)WriteFile(name, *text);
    } else {
      std::filesystem::remove(*this / name, ignored);
    }
  }
}

std::string DefaultRunFolder(absl::string_view job_name) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = absl::StrCat("runs/", job_name, "-", stamp);
  std::string path = base;
  for (int i = 2; std::filesystem::exists(path); ++i) path = absl::StrCat(base, "-", i);
  return path;
}

}  // namespace fusionllm::cli
