// The file of --config: YAML with `apiVersion: config.fusionllm.io/v1alpha1`, `kind: OperatorConfig`, and each flag under its name in
// camelCase (--kube-api-qps: kubeApiQps), those apart that have the program do something else than be the operator. What is on the command
// line goes before it. config_fields.h has the table of its fields, config_reload.h follows it while the program runs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "operator/manager/flags.h"

namespace fusionllm::op::manager {

// A command line. Does not own it: that of main() lives as long as the program.
struct CommandLine {
  int argc = 0;
  const char* const* argv = nullptr;
};

// The defaults, over them what `yaml` says, over that the command line, which ParseFlags has found in order. `file`: for messages.
// InvalidArgument: what is wrong, by line and field (lib/job/parse.h).
absl::StatusOr<Flags> MergeFlags(absl::string_view yaml, absl::string_view file, const CommandLine& line);

// The file, whole. Errors name it. Blocks.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace fusionllm::op::manager
