#include "operator/federation/access_providers.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/auth/exec_plugin.h"
#include "lib/kube/auth/exec_rules.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr char kEnvNames[] = "profileSourcedEnvVarNames";

// Reads fields and remembers the first thing that is wrong.
class Reader {
 public:
  explicit Reader(absl::string_view file) : file_(file) {}

  const absl::Status& status() const { return status_; }

  void Fail(absl::string_view path, absl::string_view what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(file_, ": ", path, path.empty() ? "" : " ", what));
  }

  void Check(absl::string_view path, const absl::Status& status) {
    if (!status.ok()) Fail(path, status.message());
  }

  void CheckMap(const json& value, const std::string& path, std::initializer_list<absl::string_view> known) {
    if (!value.is_object()) return Fail(path, "must be an object");
    for (const auto& item : value.items()) {
      if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
      Fail(path.empty() ? item.key() : absl::StrCat(path, ".", item.key()),
           absl::StrCat("is no field: known are ", absl::StrJoin(known, ", ")));
    }
  }

  std::string Text(const json& map, const char* key, const std::string& path, bool required = false) {
    const json& value = kube::At(map, key);
    const std::string text = kube::TextOf(value);
    if (!value.is_null() && !value.is_string()) Fail(absl::StrCat(path, ".", key), "must be text");
    // It would end an argument of a program, unseen.
    if (text.find('\0') != std::string::npos) Fail(absl::StrCat(path, ".", key), "must not hold a NUL");
    if (required && text.empty()) Fail(absl::StrCat(path, ".", key), "is required");
    return text;
  }

  bool Bool(const json& map, const char* key, const std::string& path) {
    const json& value = kube::At(map, key);
    if (!value.is_null() && !value.is_boolean()) Fail(absl::StrCat(path, ".", key), "must be true or false");
    return value.is_boolean() && value.get<bool>();
  }

  // Null stands for none, as Go writes it.
  const json& List(const json& map, const char* key, const std::string& path) {
    const json& value = kube::At(map, key);
    if (!value.is_null() && !value.is_array()) Fail(path.empty() ? key : absl::StrCat(path, ".", key), "must be a list");
    return kube::ListOf(value);
  }

  // One of `words`, by its index; the first where there is none.
  size_t Choice(const json& map, const char* key, const std::string& path, std::initializer_list<absl::string_view> words) {
    const std::string text = Text(map, key, path);
    if (text.empty()) return 0;
    const auto at = std::find(words.begin(), words.end(), text);
    if (at == words.end()) Fail(absl::StrCat(path, ".", key), absl::StrCat("must be one of ", absl::StrJoin(words, ", ")));
    return at == words.end() ? 0 : static_cast<size_t>(at - words.begin());
  }

 private:
  const absl::string_view file_;
  absl::Status status_;
};

kube::ExecConfig ReadExec(Reader& reader, const json& map, const std::string& path) {
  reader.CheckMap(map, path, {"apiVersion", "command", "args", "env", "installHint", "provideClusterInfo", "interactiveMode"});
  kube::ExecConfig exec;
  exec.api_version = reader.Text(map, "apiVersion", path, /*required=*/true);
  exec.command = reader.Text(map, "command", path, /*required=*/true);
  reader.Check(path + ".apiVersion", kube::CheckExecVersion(exec.api_version));
  reader.Check(path + ".command", kube::CheckExecCommand(exec.command));
  exec.install_hint = reader.Text(map, "installHint", path);
  exec.provide_cluster_info = reader.Bool(map, "provideClusterInfo", path);
  if (reader.Text(map, "interactiveMode", path) == "Always") {
    reader.Fail(path + ".interactiveMode", "must be Never or IfAvailable: there is no terminal");
  }
  size_t i = 0;
  for (const json& arg : reader.List(map, "args", path)) {
    const std::string arg_path = absl::StrCat(path, ".args[", i++, "]");
    exec.args.push_back(kube::TextOf(arg));
    if (!arg.is_string() || absl::StrContains(exec.args.back(), '\0')) reader.Fail(arg_path, "must be text without NULs");
  }
  i = 0;
  for (const json& variable : reader.List(map, "env", path)) {
    const std::string env_path = absl::StrCat(path, ".env[", i++, "]");
    reader.CheckMap(variable, env_path, {"name", "value"});
    exec.env.emplace_back(reader.Text(variable, "name", env_path, /*required=*/true), reader.Text(variable, "value", env_path));
  }
  return exec;
}

AccessProvider ReadProvider(Reader& reader, const json& map, const std::string& path) {
  reader.CheckMap(map, path, {"name", "execConfig", "profileSourcedCLIArgsPolicy", "profileSourcedEnvVarsPolicy", kEnvNames});
  AccessProvider provider;
  provider.name = reader.Text(map, "name", path, /*required=*/true);
  provider.exec = ReadExec(reader, kube::At(map, "execConfig"), path + ".execConfig");
  provider.append_args = reader.Choice(map, "profileSourcedCLIArgsPolicy", path, {"Ignore", "Append"}) == 1;
  provider.env_policy = static_cast<AccessProvider::EnvPolicy>(
      reader.Choice(map, "profileSourcedEnvVarsPolicy", path, {"Ignore", "AppendIfNotExists", "Replace"}));
  size_t i = 0;
  for (const json& one : reader.List(map, kEnvNames, path)) {
    const std::string variable = kube::TextOf(one), variable_path = absl::StrCat(path, ".", kEnvNames, "[", i++, "]");
    if (!one.is_string()) reader.Fail(variable_path, "must be the name of a variable");
    reader.Check(variable_path, kube::CheckExecVariable(variable));
    provider.profile_env.insert(variable);
  }
  return provider;
}

}  // namespace

absl::StatusOr<AccessProviders> ParseAccessProviders(absl::string_view text, absl::string_view file) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": is longer than ", kMaxFileBytes, " bytes"));
  }
  if (const std::string beyond = base::BeyondJsonLimits(text); !beyond.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", beyond));
  }
  json root;
  try {
    root = json::parse(text.begin(), text.end());  // tidy-allow: json because errors have their place, and the limits were looked at
  } catch (const json::parse_error& error) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(std::min(error.byte, text.size())), '\n');
    return absl::InvalidArgumentError(absl::StrCat(file, ":", line, ": is no JSON"));
  } catch (const json::out_of_range&) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": holds a number that is too large"));
  }
  Reader reader(file);
  reader.CheckMap(root, "", {"providers"});
  AccessProviders providers;
  for (const json& one : reader.List(root, "providers", "")) {
    const std::string path = absl::StrCat("providers[", providers.size(), "]");
    providers.push_back(ReadProvider(reader, one, path));
    const bool again = std::any_of(providers.begin(), providers.end() - 1,
                                   [&](const AccessProvider& other) { return other.name == providers.back().name; });
    if (again) reader.Fail(path + ".name", absl::StrCat("was there before: ", providers.back().name));
  }
  if (providers.empty()) reader.Fail("providers", "names none");
  if (!reader.status().ok()) return reader.status();
  return providers;
}

absl::StatusOr<AccessProviders> LoadAccessProviders(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, kube::ReadSmallFile(path, kMaxFileBytes));
  return ParseAccessProviders(text, path);
}

std::set<std::string> CommandsOf(const AccessProviders& providers) {
  std::set<std::string> commands;
  for (const AccessProvider& provider : providers) commands.insert(provider.exec.command);
  return commands;
}

}  // namespace fusionllm::op::federation
