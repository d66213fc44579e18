// fusionctl cluster add NAME
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/cluster/add_cluster.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/kubeconfig.h"
#include "lib/kube/client/rest_client.h"

namespace fusionllm::cli {
namespace {

struct Flags {
  AddClusterOptions options;
  std::string hub_kubeconfig, hub_context, member_kubeconfig, member_context;
  double wait_s = 60;
};

// As kubectl finds it.
absl::StatusOr<kube::ClientConfig> FindConfig(const std::string& file, const std::string& context) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::Kubeconfig config,
                             kube::LoadKubeconfig(file.empty() ? kube::DefaultKubeconfigPaths() : std::vector<std::string>{file}));
  return kube::ResolveContext(config, context);
}

absl::StatusOr<std::unique_ptr<kube::RestClient>> Open(const kube::ClientConfig& config) {
  kube::AccessOptions access;
  // The user's own file: the program that it names is the user's choice.
  if (config.exec.has_value()) access.exec_allowed.insert(config.exec->command);
  FUSIONLLM_ASSIGN_OR_RETURN(kube::ClusterAccess opened, kube::OpenAccess(config, kube::RealClock(), access));
  return std::make_unique<kube::RestClient>(std::move(opened), kube::RestClientOptions{.user_agent = "fusionctl"}, kube::RealClock());
}

absl::StatusOr<int> AddToHub(const Flags& flags, OutputFormat format) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig hub_config, FindConfig(flags.hub_kubeconfig, flags.hub_context));
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig member_config, FindConfig(flags.member_kubeconfig, flags.member_context));
  if (hub_config.server == member_config.server) {
    return absl::InvalidArgumentError(absl::StrCat("hub and member are the same server, ", hub_config.server,
                                                   ": a hub lends its own devices by a FusionCluster with spec.local"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto hub, Open(hub_config));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto member, Open(member_config));
  FUSIONLLM_ASSIGN_OR_RETURN(const AddedCluster added, AddCluster(flags.options, *hub, *member, member_config, kube::RealClock(),
                                                                  [](const std::string& line) { absl::FPrintF(stderr, "%s\n", line); }));
  if (format == OutputFormat::kJson) {
    const nlohmann::json line = {
        {"name", flags.options.name}, {"server", added.server}, {"ready", added.ready}, {"message", added.message}};
    absl::PrintF("%s\n", line.dump());
  } else {
    absl::PrintF("FusionCluster %s (%s) is %s: %s\n", flags.options.name, added.server, added.ready ? "ready" : "not ready yet",
                 added.message);
  }
  return added.ready ? kExitDone : kExitFailed;
}

}  // namespace

void AddClusterCommands(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* const cluster = app.add_subcommand("cluster", "Kubernetes clusters that take part in jobs");
  cluster->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = cluster->add_subcommand(
      "add", "Make a cluster a member of a hub: an account with the rights there, a Secret and a FusionCluster on the hub");
  command->add_option("NAME", flags->options.name, "of the FusionCluster")->required()->check(ObjectName());
  command->add_option("--kubeconfig", flags->hub_kubeconfig, "of the hub (default: $KUBECONFIG or ~/.kube/config)");
  command->add_option("--context", flags->hub_context, "of the hub (default: the current one)");
  CLI::Option* const file = command->add_option("--member-kubeconfig", flags->member_kubeconfig,
                                                "of the member, with rights to make roles there (default: as for the hub)");
  CLI::Option* const context = command->add_option("--member-context", flags->member_context, "of the member (default: the current one)");
  command->add_option("--namespace", flags->options.hub_namespace, "where the operator runs on the hub")
      ->check(ObjectName())
      ->capture_default_str();
  command->add_option("--member-namespace", flags->options.member_namespace, "where the account is made in the member")
      ->check(ObjectName())
      ->capture_default_str();
  command->add_option("--account", flags->options.account, "the account; hubs that share a member take different ones")
      ->check(ObjectName())
      ->capture_default_str();
  command
      ->add_option("--job-namespace", flags->options.job_namespaces,
                   "namespace of jobs, where alone the account may make Pods and Secrets (repeatable; default: all)")
      ->check(ObjectName())
      ->allow_extra_args(false);
  command->add_option("--server", flags->options.server,
                      "https://HOST:PORT by which the hub reaches the member (default: as its kubeconfig says)");
  command->add_option("--wait-seconds", flags->wait_s, "for the hub to be connected")->check(NumberFrom(0))->capture_default_str();
  command->footer("Example:\n  fusionctl cluster add paris --context hub --member-context paris --job-namespace training");
  command->callback([flags, file, context, &globals, &action] {
    if (file->count() + context->count() == 0) throw CLI::RequiredError("--member-kubeconfig or --member-context");
    action = [flags, &globals] {
      flags->options.patience = absl::Seconds(flags->wait_s);
      const absl::StatusOr<int> code = AddToHub(*flags, globals.format);
      return code.ok() ? *code : Complain(code.status());
    };
  });
}

}  // namespace fusionllm::cli
