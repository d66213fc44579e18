// What fusion-operator is told: on its command line, and in the file that --config names.
//
// The file is YAML with `apiVersion: config.fusionllm.io/v1alpha1`, `kind: OperatorConfig`, and each flag under its name in camelCase
// (--kube-api-qps: kubeApiQps), those apart that have the program do something else than be the operator. What is on the command line
// goes before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/daemon/program.h"
#include "operator/features/feature_gates.h"
#include "operator/hooks/chart_hooks.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op {

inline constexpr char kProgram[] = "fusion-operator";

struct Flags {
  std::string config;  // the file; empty: none
  std::string ask_ready;
  HookFlags hooks;

  std::string kubeconfig, ns, origin = "hub", cluster = "local", hub_address, scheduler, profile_providers;
  Images images{.broker = "fusionllm/broker:latest", .scheduler = "fusionllm/scheduler:latest", .executor = "fusionllm/executor:latest"};
  int64_t workers = 8;
  double hub_qps = 500;
  int64_t hub_burst = 1000;
  int64_t member_cache_mib = 48;
  std::vector<std::string> exec_programs;
  bool elect = false;
  std::vector<std::string> namespaces;
  FeatureGates features;
  daemon::CommonFlags common;
};

// A command line. Does not own it: that of main() lives as long as the program.
struct CommandLine {
  int argc = 0;
  const char* const* argv = nullptr;
};

// All of them, daemon's own included.
void AddFlags(CLI::App& app, Flags& flags);

// As daemon::ParseFlags, of the command line and the file that it names. Exit code 2 also for what is wrong in the file, told on stderr by
// line and field. Blocks on the file.
std::optional<int> ParseFlags(int argc, char** argv, Flags& flags);

// The defaults, over them what `yaml` says, over that the command line, which ParseFlags has found in order. `file`: for messages.
// InvalidArgument: what is wrong, by line and field (lib/job/parse.h).
absl::StatusOr<Flags> MergeFlags(absl::string_view yaml, absl::string_view file, const CommandLine& line);

// The file, whole. Errors name it. Blocks.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace fusionllm::op
