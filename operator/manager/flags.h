// The settings of fusion-operator: on its command line, and in the file that --config names (config_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/daemon/program.h"
#include "lib/kube/auth/exec_rules.h"
#include "operator/manager/chart_hooks.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::manager {

inline constexpr char kProgram[] = "fusion-operator";

struct Flags {
  std::string config;  // the file; empty: none
  std::string check_ready;
  HookFlags hooks;

  std::string kubeconfig, ns, origin = "hub", cluster = "local", hub_address, scheduler, profile_providers;
  manifests::Images images{
      .broker = "fusionllm/broker:latest", .scheduler = "fusionllm/scheduler:latest", .executor = "fusionllm/executor:latest"};
  int64_t workers = 8;
  double hub_qps = 500;
  int64_t hub_burst = 1000;
  int64_t member_cache_mib = 48;
  std::vector<std::string> exec_programs, exec_env;
  bool elect = false;
  bool hub_on_demand = false;
  std::vector<std::string> namespaces;
  bool feature_gates = false;  // some are given (removed_gates.h)
  daemon::CommonFlags common;
};

// What is wrong with it as a name in labels and of namespaces, as the address of a host, as a program; empty: nothing.
std::string CheckName(const std::string& text);
std::string CheckHost(const std::string& text);
std::string CheckProgram(const std::string& text);
// As that, as a variable that a kubeconfig may set.
std::string CheckVariable(const std::string& text);

// Of flags that were checked.
kube::ExecRules ExecRulesOf(const Flags& flags);

// All of them, daemon's own included.
void AddFlags(CLI::App& app, Flags& flags);

// As daemon::ParseFlags, of the command line and the file that it names. Exit code 2 also for what is wrong in the file, reported on stderr
// by line and field. Blocks on the file.
std::optional<int> ParseFlags(int argc, char** argv, Flags& flags);

}  // namespace fusionllm::op::manager
