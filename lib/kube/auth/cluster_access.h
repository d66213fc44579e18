// From a configuration to how a server is reached; what a configuration from others may contain.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/auth/client_config.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/auth/exec_metrics.h"
#include "lib/kube/auth/exec_rules.h"
#include "lib/kube/clock.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube {

struct AccessOptions {
  // Programs that a kubeconfig may have us run, by the command as it is written there. Others are refused.
  std::set<std::string> exec_allowed = {};
  // The same with arguments and variables, for a kubeconfig that somebody else wrote: it then decides in place of the first.
  std::optional<ExecRules> exec_rules = std::nullopt;
};

struct ClusterAccess {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<CredentialSource> credentials;
  std::string server;  // host and port
  std::string ns;      // where objects without one belong
};

// InvalidArgument: the configuration contradicts itself or holds what is not supported, the message says which; errors of files that cannot
// be read. Does not connect. `clock` and `metrics` (which may be null) must outlive what is returned.
absl::StatusOr<ClusterAccess> OpenAccess(const ClientConfig& config, Clock& clock, const AccessOptions& options = {},
                                         const ExecMetrics* metrics = nullptr);

// That of a Pod: token and authority from the files that the kubelet mounts and renews. NotFound outside of a cluster. `root` is for tests.
absl::StatusOr<ClientConfig> InClusterConfig(const std::string& root = "");

// Why a configuration that somebody else wrote, in a Secret, must not be used as it is: with it they would read files of ours, run programs
// here, or have us send credentials to who knows whom.
struct ConfigRefusal {
  std::string reason;  // "TokenFileNotAllowed"
  std::string message;
};
std::vector<ConfigRefusal> CheckUntrustedConfig(const ClientConfig& config, const AccessOptions& options = {});

}  // namespace fusionllm::kube
