#include "services/executor/shared_calibration.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"

namespace fusionllm::services {

std::string SharedCalibration::PathOf(const std::string& backend, int threads) const {
  return absl::StrCat(directory_, "/calibration-", backend, "-", threads);
}

std::optional<wire::DeviceProfile> SharedCalibration::Find(const std::string& backend, int threads) const {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  if (directory_.empty() || incarnation_.empty()) return std::nullopt;
  const absl::StatusOr<std::string> text = base::ReadSmallFile(PathOf(backend, threads), kMaxBytes);
  if (!text.ok()) return std::nullopt;
  absl::string_view document = *text;
  if (!absl::ConsumePrefix(&document, absl::StrCat(incarnation_, "\n"))) return std::nullopt;
  absl::StatusOr<wire::DeviceProfile> profile = wire::ParseProfile(document);
  if (!profile.ok()) return std::nullopt;
  return *std::move(profile);
}

absl::Status SharedCalibration::Keep(const wire::DeviceProfile& profile) const {
  if (directory_.empty() || incarnation_.empty()) return absl::OkStatus();
  // The first line tells whose it is.
  return base::ReplaceFile(PathOf(profile.backend, profile.threads), absl::StrCat(incarnation_, "\n", wire::PrintProfile(profile)));
}

}  // namespace fusionllm::services
