#include "lib/base/thread_limit.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::base {
namespace {

constexpr char kLimits[] = "ulimit -u of the user, or pids.max of the container";

}  // namespace

bool IsThreadLimitError(const std::system_error& error) { return error.code() == std::errc::resource_unavailable_try_again; }

std::string ThreadLimitMessage(absl::string_view what) {
  return absl::StrCat("cannot start ", what, ": the system refuses more threads and processes (Resource temporarily unavailable); a limit ",
                      "is reached: ", kLimits);
}

std::string LikelyThreadLimit(absl::string_view end_of_log) {
  if (absl::StrContains(end_of_log, kLimits)) return "";
  // gRPC's check of the threads that it starts; its and others' words for EAGAIN.
  constexpr std::array<absl::string_view, 3> kSigns = {"worker->created()", "pthread_create", "Resource temporarily unavailable"};
  const bool refused =
      std::any_of(kSigns.begin(), kSigns.end(), [&](absl::string_view sign) { return absl::StrContains(end_of_log, sign); });
  return refused ? absl::StrCat("the likely cause is a limit of threads and processes: ", kLimits) : "";
}

}  // namespace fusionllm::base
