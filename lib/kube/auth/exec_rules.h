// Which programs kubeconfigs that others wrote may have us run for credentials, with which arguments and variables. A program alone is no
// bound: arguments and variables make many a program run another, or send what it knows elsewhere. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/auth/client_config.h"

namespace fusionllm::kube {

// Stands for any one argument that does not begin with '-', in a rule.
inline constexpr char kAnyArgument[] = "*";

struct ExecRule {
  std::string command;            // as the kubeconfig must have it
  std::vector<std::string> args;  // all of them, in their order
  bool operator==(const ExecRule&) const = default;
};

// "aws eks get-token --cluster-name *": a command and its arguments, with blanks between. InvalidArgument says what is wrong.
absl::StatusOr<ExecRule> ParseExecRule(absl::string_view text);

// OK when others may be allowed to set a variable of this name: letters, digits and '_', no digit first, and none by which they would say
// what code runs (LD_*, DYLD_*, PATH and their like). Which other variables do that differs from program to program.
absl::Status CheckExecVariable(absl::string_view name);

struct ExecRules {
  std::vector<ExecRule> calls;  // of these one must be it
  std::set<std::string> env;    // names of the variables that may be set
};

// Why the rules do not allow it, in words that name what; empty: they do.
std::string RefusalOf(const ExecConfig& exec, const ExecRules& rules);

}  // namespace fusionllm::kube
