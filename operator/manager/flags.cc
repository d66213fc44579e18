#include "operator/manager/flags.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/dns_label.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/kube/auth/exec_plugin.h"
#include "operator/manager/config_file.h"
#include "operator/manager/image_reference.h"
#include "operator/manager/removed_gates.h"
#include "services/version.h"

namespace fusionllm::op::manager {

namespace {

std::string CheckFinite(const std::string& text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) && std::isfinite(number) ? "" : "must be a number";
}

}  // namespace

std::string CheckName(const std::string& text) {
  return base::IsDnsLabel(text) ? "" : "must be lower-case letters, digits and '-', at most 63, the first and the last not '-'";
}

std::string CheckHost(const std::string& text) { return std::string(base::CheckDialableHost(text).message()); }

std::string CheckProgram(const std::string& text) { return std::string(kube::ParseExecRule(text).status().message()); }

std::string CheckVariable(const std::string& text) { return std::string(kube::CheckExecVariable(text).message()); }

kube::ExecRules ExecRulesOf(const Flags& flags) {
  kube::ExecRules rules{.env = {flags.exec_env.begin(), flags.exec_env.end()}};
  for (const std::string& text : flags.exec_programs) {
    if (auto rule = kube::ParseExecRule(text); rule.ok()) rules.calls.push_back(*std::move(rule));
  }
  return rules;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option(
      "--config", flags.config,
      "Settings as YAML, each flag under its name in camelCase; flags go before it. Read again when it changes: the log level and "
      "--kube-api-* then hold at once, other changes are logged and await a restart");
  app.add_option("--kubeconfig", flags.kubeconfig, "Of the hub; default: that of the pod, else $KUBECONFIG or ~/.kube/config");
  app.add_option("--origin", flags.origin, "Names this hub in the labels of what it makes; one for each hub that shares members")
      ->check(CheckName)
      ->capture_default_str();
  app.add_option("--cluster-name", flags.cluster, "Name of the hub as a cluster that lends devices, where no FusionCluster names it")
      ->check(CheckName)
      ->capture_default_str();
  app.add_option("--namespace", flags.ns, "Where Secrets with kubeconfigs of members are; default: that of the pod or kubeconfig")
      ->check(CheckName);
  app.add_option("--hub-address", flags.hub_address, "Where nodes of the hub are reached from members; default: as its nodes say")
      ->check(CheckHost);
  app.add_flag("--hub-on-demand", flags.hub_on_demand,
               "Nodes of a hub that lends no devices are made when Pods wait for them: brokers are placed there in any case");
  app.add_option("--scheduler", flags.scheduler,
                 "Ask the scheduler at HOST:PORT, without TLS, which clusters make the fastest run; default: room and preference decide")
      ->check([](const std::string& text) { return std::string(base::CheckDialable(text).message()); });
  app.add_option("--broker-image", flags.images.broker, "Image of the broker")->check(CheckImage)->capture_default_str();
  app.add_option("--scheduler-image", flags.images.scheduler, "Image of the scheduler")->check(CheckImage)->capture_default_str();
  app.add_option("--executor-image", flags.images.executor, "Image of executors whose job names none")
      ->check(CheckImage)
      ->capture_default_str();
  app.add_option("--executor-cuda-image", flags.images.executor_cuda,
                 "Image of executors that ask for an NVIDIA device; empty: --executor-image")
      ->check([](const std::string& text) { return text.empty() ? "" : CheckImage(text); })
      ->capture_default_str();
  app.add_option("--image-pull-policy", flags.images.pull_policy, "Always, IfNotPresent or Never; default: Kubernetes' own")
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}));
  app.add_option("--check-ready", flags.check_ready,
                 "Ask the operator whose monitoring server is at HOST:PORT whether it is ready, and end: 0 yes")
      ->check([](const std::string& text) { return std::string(base::CheckDialable(text).message()); });
  app.add_flag("--leader-elect", flags.elect, "Work only while leading by the Lease fusion-operator; for more than one replica");
  app.add_option("--kube-api-qps", flags.hub_qps, "Requests a second to the hub's API server, in the long run")
      ->check(CheckFinite)
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  app.add_option("--kube-api-burst", flags.hub_burst, "Requests at once to the hub's API server when there were none before")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--watch-namespaces", flags.namespaces, "Namespaces whose FusionJobs are watched, and worked on; default: all")
      ->delimiter(',')
      ->check(CheckName);
  AddHookFlags(app, flags.hooks);
  app.add_option("--member-cache-mib", flags.member_cache_mib,
                 "MiB that what is kept of one member may take; one that has, or sends, more is not used. With a higher one, raise the "
                 "container's memory limit by twice the difference")
      ->check(CLI::Range(4, 65'536))
      ->capture_default_str();
  app.add_option("--exec-program", flags.exec_programs,
                 "A program, as kubeconfigs of members name it, and all of its arguments, that these may have the operator run for "
                 "credentials, as \"aws eks get-token --cluster-name *\": * stands for one argument that does not begin with '-'. May be "
                 "given again. Default: none")
      ->check(CheckProgram);
  app.add_option("--exec-env", flags.exec_env,
                 "A variable of its environment that kubeconfigs of members may set for such a program; may be given again. Default: none")
      ->check(CheckVariable);
  app.add_option("--cluster-profile-providers", flags.profile_providers,
                 "JSON file with the access providers, programs that print credentials, by which FusionClusters that name a ClusterProfile "
                 "are reached. Default: such FusionClusters are not used");
  app.add_option("--workers", flags.workers, "Jobs that are worked on at a time")->check(CLI::Range(1, 256))->capture_default_str();
  const auto take_removed_gates = [&flags](const std::string& text) {
    // By hand: a check of an option that is not in --help has no name to report it by.
    if (const std::string wrong = CheckRemovedGates(text); !wrong.empty()) throw CLI::ValidationError("--feature-gates", wrong);
    flags.feature_gates = true;
  };
  app.add_option_function<std::string>("--feature-gates", take_removed_gates, "It is gone")->group("");
  daemon::AddCommonFlags(app, kProgram, services::kBuildVersion, flags.common);
}

std::optional<int> ParseFlags(int argc, char** argv, Flags& flags) {
  CLI::App app("Brings FusionJobs of a Kubernetes cluster to their end");
  AddFlags(app, flags);
  // Before the log starts, which the file has a say in.
  app.final_callback([&] {
    if (flags.config.empty()) return;
    const absl::StatusOr<std::string> yaml = ReadConfigFile(flags.config);
    if (!yaml.ok()) throw CLI::ValidationError(std::string(yaml.status().message()));
    absl::StatusOr<Flags> merged = MergeFlags(*yaml, flags.config, {argc, argv});
    if (!merged.ok()) throw CLI::ValidationError(std::string(merged.status().message()));
    flags = *std::move(merged);
  });
  const std::optional<int> code = daemon::ParseFlags(app, argc, argv, kProgram, flags.common);
  if (!code.has_value() && flags.feature_gates) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("--feature-gates and featureGates are gone: what they turned on (", RemovedGateNames(),
                                                     ") is always on. Leave them out: the next version refuses them"));
  }
  return code;
}

}  // namespace fusionllm::op::manager
