// Credentials from a program (client.authentication.k8s.io/v1 and v1beta1), as kubeconfigs of cloud clusters name them.
//
// The program runs without a shell and without a terminal, at most once at a time for one source; what it prints is kept until it expires
// or is refused. Its stderr goes to the log, cut. It is killed after `timeout` or when `stop` is requested. Thread-safe.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/auth/client_config.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/auth/exec_metrics.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube {

// What is wrong with an apiVersion, or a program, that somebody names: InvalidArgument, as what is said of a field. A program is an
// absolute path, or a name without a slash that is looked for in $PATH: a relative path would be another program in another folder.
absl::Status CheckExecVersion(absl::string_view api_version);
absl::Status CheckExecCommand(absl::string_view command);

// InvalidArgument: an apiVersion that is not known, or a program that needs a terminal. `config` describes the cluster to a program that
// wants to know, which gets what the authority's file holds now; errors: of that file. `clock` and `metrics` (which may be null) must
// outlive the source.
absl::StatusOr<std::shared_ptr<CredentialSource>> MakeExecPlugin(const ExecConfig& exec, const ClientConfig& config, Clock& clock,
                                                                 const ExecMetrics* metrics = nullptr,
                                                                 absl::Duration timeout = absl::Minutes(1));

struct ExecCredential {
  Credentials credentials;
  absl::Time expires = absl::InfiniteFuture();
};

// What a program has printed. InvalidArgument names what is wrong, never what was printed.
absl::StatusOr<ExecCredential> ParseExecCredential(absl::string_view text, absl::string_view api_version);

}  // namespace fusionllm::kube
