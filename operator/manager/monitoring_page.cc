#include "operator/manager/monitoring_page.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/kube/http/curl_transport.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::manager {
namespace {

constexpr absl::Duration kFetchTimeout = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::string> FetchMonitoringPage(const std::string& address, const char* page) {
  auto transport = kube::CurlTransport::Make({.server = absl::StrCat("http://", address), .connect_timeout = kFetchTimeout});
  if (!transport.ok()) return transport.status();
  const kube::UnaryLimits limits{.timeout = kFetchTimeout, .max_response_bytes = lifecycle::kMaxProgressBytes};
  auto response = (*transport)->Send({.target = page}, limits, {});
  if (!response.ok()) return response.status();
  if (response->code != 200) return absl::UnavailableError(absl::StrCat("HTTP ", response->code, " ", response->body));
  return response->body;
}

}  // namespace fusionllm::op::manager
