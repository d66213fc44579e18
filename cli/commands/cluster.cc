// fusionctl cluster add NAME, fusionctl cluster remove NAME
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
#include "cli/cluster/remove_cluster.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/kubeconfig.h"
#include "lib/kube/auth/named_files.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/http/server_url.h"

namespace fusionllm::cli {
namespace {

// Which servers, and where the account is, as both commands take it.
struct Servers {
  std::string hub_kubeconfig, hub_context, member_kubeconfig, member_context;
  CLI::Option *member_file = nullptr, *member_choice = nullptr;
  bool HaveMember() const { return member_file->count() + member_choice->count() > 0; }
};

struct AddFlags {
  AddClusterOptions options;
  Servers servers;
  double wait_s = 60;
};

struct RemoveFlags {
  RemoveClusterOptions options;
  Servers servers;
  double wait_s = 60;
};

// As kubectl finds it.
absl::StatusOr<kube::ClientConfig> FindConfig(const std::string& file, const std::string& context) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::Kubeconfig config, kube::LoadKubeconfigOrDefault(file));
  return kube::ResolveContext(config, context);
}

absl::StatusOr<std::unique_ptr<kube::RestClient>> Open(const kube::ClientConfig& config) {
  kube::AccessOptions access;
  // The user's own file: the program that it names is the user's choice.
  if (config.exec.has_value()) access.exec_allowed.insert(config.exec->command);
  FUSIONLLM_ASSIGN_OR_RETURN(kube::ClusterAccess opened, kube::OpenAccess(config, kube::RealClock(), access));
  FUSIONLLM_RETURN_IF_ERROR(kube::CheckNamedFiles(config));
  return std::make_unique<kube::RestClient>(std::move(opened), kube::RestClientOptions{.user_agent = "fusionctl"}, kube::RealClock());
}

void TellStep(const std::string& line) { absl::FPrintF(stderr, "%s\n", line); }

absl::StatusOr<int> AddToHub(const AddFlags& flags, OutputFormat format) {
  const Servers& servers = flags.servers;
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig hub_config, FindConfig(servers.hub_kubeconfig, servers.hub_context));
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig member_config, FindConfig(servers.member_kubeconfig, servers.member_context));
  if (hub_config.server == member_config.server) {
    return absl::InvalidArgumentError(absl::StrCat("hub and member are the same server, ", kube::RedactUserInfo(hub_config.server),
                                                   ": a hub lends its own devices by a FusionCluster with spec.local"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto hub, Open(hub_config));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto member, Open(member_config));
  FUSIONLLM_ASSIGN_OR_RETURN(const AddedCluster added,
                             AddCluster(flags.options, *hub, *member, member_config, kube::RealClock(), TellStep));
  if (format == OutputFormat::kJson) {
    const nlohmann::json line = {
        {"name", flags.options.name}, {"server", added.server}, {"ready", added.ready}, {"message", added.message}};
    absl::PrintF("%s\n", line.dump());
  } else {
    absl::PrintF("FusionCluster %s (%s) is %s%s%s\n", flags.options.name, added.server, added.ready ? "ready" : "not ready yet",
                 added.message.empty() ? "" : ": ", added.message);
  }
  return added.ready ? kExitDone : kExitFailed;
}

absl::StatusOr<int> RemoveFromHub(const RemoveFlags& flags, OutputFormat format) {
  const Servers& servers = flags.servers;
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig hub_config, FindConfig(servers.hub_kubeconfig, servers.hub_context));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto hub, Open(hub_config));
  std::unique_ptr<kube::RestClient> member;
  if (servers.HaveMember()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const kube::ClientConfig config, FindConfig(servers.member_kubeconfig, servers.member_context));
    FUSIONLLM_ASSIGN_OR_RETURN(member, Open(config));
  }
  FUSIONLLM_RETURN_IF_ERROR(RemoveCluster(flags.options, *hub, member.get(), kube::RealClock(), TellStep));
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", nlohmann::json({{"name", flags.options.name}, {"removed", true}, {"member", member != nullptr}}).dump());
  } else {
    absl::PrintF("cluster %s is no member any more%s\n", flags.options.name,
                 member != nullptr ? "" : "; its account is still there: --member-context removes it, too");
  }
  return kExitDone;
}

void AddServerOptions(CLI::App& command, Servers& servers, std::string& hub_namespace, std::string& member_namespace,
                      std::string& account) {
  command.add_option("--kubeconfig", servers.hub_kubeconfig, "of the hub (default: $KUBECONFIG or ~/.kube/config)");
  command.add_option("--context", servers.hub_context, "of the hub (default: the current one)");
  servers.member_file =
      command.add_option("--member-kubeconfig", servers.member_kubeconfig,
                         "of the member, with rights to make roles there (default with --member-context: as for the hub)");
  servers.member_choice =
      command.add_option("--member-context", servers.member_context,
                         "of the member (default with --member-kubeconfig: its current one); to add a cluster, one of the two is needed");
  command.add_option("--namespace", hub_namespace, "where the operator runs on the hub")->check(ObjectName())->capture_default_str();
  command.add_option("--member-namespace", member_namespace, "where the account is in the member")
      ->check(ObjectName())
      ->capture_default_str();
  command.add_option("--account", account, "the account; hubs that share a member take different ones")
      ->check(ObjectName())
      ->capture_default_str();
}

void AddAddCommand(CLI::App& cluster, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<AddFlags>();
  AddClusterOptions& options = flags->options;
  CLI::App* const command = cluster.add_subcommand(
      "add", "Make a cluster a member of a hub: an account with the rights there, a Secret and a FusionCluster on the hub");
  command->add_option("NAME", options.name, "of the FusionCluster")->required()->check(ClusterName());
  AddServerOptions(*command, flags->servers, options.hub_namespace, options.member_namespace, options.account);
  command
      ->add_option("--job-namespace", options.job_namespaces,
                   "namespace of jobs, where alone the account may make Pods, Services, ConfigMaps and Secrets (repeatable; this or "
                   "--all-namespaces is needed); for a cluster that is added again it withdraws these rights in all other namespaces, and "
                   "is refused "
                   "while jobs have objects there")
      ->check(ObjectName())
      ->allow_extra_args(false);
  command->add_flag(
      "--all-namespaces", options.all_namespaces,
      "these rights in all namespaces, those of others and their Secrets included: who may write jobs in a namespace of the hub "
      "has Pods in the member's of the same name");
  command
      ->add_option("--job-service-account", options.job_service_accounts,
                   "service account that Pods of jobs may use, besides their namespace's default (repeatable)")
      ->check(ObjectName())
      ->allow_extra_args(false);
  command->add_flag("--owner-references-enforced", options.owner_references_enforced,
                    "for a member with the admission plugin OwnerReferencesPermissionEnforcement, such as OpenShift");
  command->add_option("--server", options.server,
                      "https://HOST:PORT by which the hub reaches the member (default: as its kubeconfig says)");
  command->add_option("--wait-seconds", flags->wait_s, "for the hub to be connected")->check(NumberFrom(0))->capture_default_str();
  command->footer("Example:\n  fusionctl cluster add paris --context hub --member-context paris --job-namespace training");
  command->callback([flags, &globals, &action] {
    if (!flags->servers.HaveMember()) throw CLI::RequiredError("--member-kubeconfig or --member-context");
    action = [flags, &globals] {
      flags->options.timeout = absl::Seconds(flags->wait_s);
      const absl::StatusOr<int> code = AddToHub(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

void AddRemoveCommand(CLI::App& cluster, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<RemoveFlags>();
  RemoveClusterOptions& options = flags->options;
  CLI::App* const command = cluster.add_subcommand(
      "remove", "Take a member from its hub: the FusionCluster and its Secret, and the account in the member if that is named");
  command->add_option("NAME", options.name, "of the FusionCluster")->required()->check(ClusterName());
  AddServerOptions(*command, flags->servers, options.hub_namespace, options.member_namespace, options.account);
  command->add_flag("--force", options.force, "although jobs have objects there, which then stay");
  command->add_option("--wait-seconds", flags->wait_s, "for the FusionCluster to be gone")->check(NumberFrom(0))->capture_default_str();
  command->footer("Example:\n  fusionctl cluster remove paris --context hub --member-context paris");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      flags->options.timeout = absl::Seconds(flags->wait_s);
      const absl::StatusOr<int> code = RemoveFromHub(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace

void AddClusterCommands(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* const cluster = app.add_subcommand("cluster", "Kubernetes clusters that take part in jobs");
  cluster->require_subcommand(1);
  AddAddCommand(*cluster, globals, action);
  AddRemoveCommand(*cluster, globals, action);
}

}  // namespace fusionllm::cli
