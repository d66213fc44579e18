#include "lib/kube/auth/kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/base/yaml_scalar.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxEntries = 1000;
// What kExecExtension holds goes into one variable of their environment, which may take 128 KiB. Counted while it is read: aliases make
// much of little.
constexpr size_t kMaxExtensionBytes = size_t{64} << 10;
constexpr int kMaxExtensionDepth = 32;

const std::string kBeyondExtension =
    absl::StrCat("must be at most ", kMaxExtensionBytes, " bytes and ", kMaxExtensionDepth, " levels deep");

using base::YamlScalar;

// What a scalar is to kubectl. In quotes, or with a tag, it is text.
YamlScalar ScalarOf(const YAML::Node& node) {
  const bool plain = node.Tag() == "?" || node.Tag().empty();
  return plain ? base::ResolveYamlScalar(node.Scalar()) : YamlScalar{YamlScalar::Type::kText, base::FixYamlEscapes(node.Scalar()), 0};
}

// As kubectl makes JSON of YAML. Empty: done; else what is wrong with it: it is more, or deeper, than it may be, or JSON has no such
// number.
std::string ToJson(const YAML::Node& node, int depth, size_t& room, nlohmann::json& value) {
  const size_t size = 1 + (node.IsScalar() ? node.Scalar().size() : 0);
  if (depth > kMaxExtensionDepth || size > room) return kBeyondExtension;
  room -= size;
  if (node.IsScalar()) {
    const YamlScalar scalar = ScalarOf(node);
    if (scalar.type == YamlScalar::Type::kNotFinite) return "must hold no number that is not finite";
    const bool literal = scalar.type == YamlScalar::Type::kBool || scalar.type == YamlScalar::Type::kInteger;
    value = literal ? base::ParseJson(scalar.text) : nlohmann::json(scalar.text);
    if (scalar.type == YamlScalar::Type::kFloat) value = scalar.number;
  } else if (node.IsSequence()) {
    value = nlohmann::json::array();
    for (const YAML::Node& item : node) {
      if (std::string wrong = ToJson(item, depth + 1, room, value.emplace_back()); !wrong.empty()) return wrong;
    }
  } else if (node.IsMap()) {
    value = nlohmann::json::object();
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? ScalarOf(entry.first).text : "";
      if (key.size() > room) return kBeyondExtension;
      room -= key.size();
      if (std::string wrong = ToJson(entry.second, depth + 1, room, value[key]); !wrong.empty()) return wrong;
    }
  }
  return "";
}

// Reads fields and remembers the first thing that is wrong.
class Reader {
 public:
  Reader(absl::string_view name, absl::string_view folder) : name_(name), folder_(folder) {}

  const absl::Status& status() const { return status_; }

  void Fail(const YAML::Node& at, absl::string_view path, absl::string_view what) {
    if (!status_.ok()) return;
    const int line = at.IsDefined() ? at.Mark().line + 1 : 0;
    status_ = absl::InvalidArgumentError(line > 0 ? absl::StrCat(name_, ":", line, ": ", path, " ", what)
                                                  : absl::StrCat(name_, ": ", path, " ", what));
  }

  std::string Text(const YAML::Node& map, const char* key, const std::string& path) {
    const YAML::Node value = map[key];
    if (!value.IsDefined() || value.IsNull()) return "";
    return TextOf(value, absl::StrCat(path, ".", key));
  }

  // What without quotes is no text to YAML is refused, as kubectl does.
  std::string TextOf(const YAML::Node& value, const std::string& path) {
    const YamlScalar scalar = value.IsScalar() ? ScalarOf(value) : YamlScalar();
    if (value.IsScalar() && scalar.type == YamlScalar::Type::kText) return scalar.text;
    // The value may be a secret.
    const char* const what = scalar.type == YamlScalar::Type::kBool ? "true or false" : "a number";
    Fail(value, path, value.IsScalar() ? absl::StrCat("must be text, and without quotes it is ", what, " in YAML") : "must be text");
    return "";
  }

  // Goes into a line of a request. Tools that print tokens end them with a line end.
  std::string Token(const YAML::Node& map, const char* key, const std::string& path) {
    const std::string token(absl::StripTrailingAsciiWhitespace(Text(map, key, path)));
    if (!IsToken(token)) Fail(map[key], absl::StrCat(path, ".", key), kInvalidTokenMessage);
    return token;
  }

  bool Bool(const YAML::Node& map, const char* key, const std::string& path) {
    const YAML::Node value = map[key];
    if (!value.IsDefined() || value.IsNull()) return false;
    const YamlScalar scalar = value.IsScalar() ? ScalarOf(value) : YamlScalar();
    if (scalar.type != YamlScalar::Type::kBool) Fail(value, absl::StrCat(path, ".", key), "must be true or false");
    return scalar.text == "true";
  }

  std::string Path(const YAML::Node& map, const char* key, const std::string& path) {
    const std::string text = Text(map, key, path);
    if (text.empty() || folder_.empty() || absl::StartsWith(text, "/")) return text;
    return absl::StrCat(folder_, "/", text);
  }

  // `key`-data as base64, which goes before the file of `key`.
  PemSource Pem(const YAML::Node& map, const std::string& key, const std::string& path) {
    PemSource pem;
    const std::string data_key = key + "-data";
    const std::string encoded = Text(map, data_key.c_str(), path);
    if (encoded.empty()) {
      pem.path = Path(map, key.c_str(), path);
    } else if (!absl::Base64Unescape(encoded, &pem.data) || pem.data.empty()) {
      Fail(map[data_key], absl::StrCat(path, ".", data_key), "is no base64");
    }
    return pem;
  }

  YAML::Node Map(const YAML::Node& map, const char* key, const std::string& path) {
    const YAML::Node value = map[key];
    if (!value.IsDefined() || value.IsNull()) return YAML::Node(YAML::NodeType::Map);
    if (!value.IsMap()) {
      Fail(value, path.empty() ? key : absl::StrCat(path, ".", key), "must be a map");
      return YAML::Node(YAML::NodeType::Map);
    }
    return value;
  }

  YAML::Node List(const YAML::Node& map, const char* key, const std::string& path) {
    const YAML::Node value = map[key];
    if (!value.IsDefined() || value.IsNull()) return YAML::Node(YAML::NodeType::Sequence);
    if (!value.IsSequence() || value.size() > kMaxEntries) {
      Fail(value, path.empty() ? key : absl::StrCat(path, ".", key), absl::StrCat("must be a list of at most ", kMaxEntries, " entries"));
      return YAML::Node(YAML::NodeType::Sequence);
    }
    return value;
  }

  // Of a cluster's extensions the one that is for programs, as JSON; empty: there is none.
  std::string ExecExtension(const YAML::Node& map, const std::string& path) {
    const YAML::Node extensions = List(map, "extensions", path);
    for (const YAML::Node& one : extensions) {
      const std::string one_path = path + ".extensions";
      if (!one.IsMap()) {
        Fail(one, one_path, "must be a list of names and extensions");
        return "";
      }
      const YAML::Node extension = one["extension"];
      if (Text(one, "name", one_path) != kExecExtension || !extension.IsDefined() || extension.IsNull()) continue;
      nlohmann::json value;
      size_t room = kMaxExtensionBytes;
      const std::string wrong = ToJson(extension, 0, room, value);
      if (wrong.empty()) return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      Fail(extension, one_path, wrong);
    }
    return "";
  }

  // A list of {name, `inner`: {...}} into a map by name.
  template <class T, class Read>
  void Named(const YAML::Node& root, const char* list, const char* inner, std::map<std::string, T>& out, const Read& read) {
    const YAML::Node entries = List(root, list, "");
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string path = absl::StrCat(list, "[", i, "]");
      const YAML::Node entry = entries[i];
      if (entry.IsNull() || (entry.IsMap() && entry.size() == 0)) continue;
      if (!entry.IsMap()) return Fail(entry, path, "must be a map");
      const std::string entry_name = Text(entry, "name", path);
      if (entry_name.empty()) return Fail(entry, path, "has no name");
      T value = read(Map(entry, inner, path), absl::StrCat(path, ".", inner));
      if (!out.emplace(entry_name, std::move(value)).second) return Fail(entry, path, "has a name that was there before");
    }
  }

  ExecConfig Exec(const YAML::Node& map, const std::string& path) {
    ExecConfig exec;
    exec.api_version = Text(map, "apiVersion", path);
    exec.command = Text(map, "command", path);
    // A command with a slash is relative to the file, one without is searched for in $PATH.
    if (absl::StrContains(exec.command, "/")) exec.command = Path(map, "command", path);
    exec.provide_cluster_info = Bool(map, "provideClusterInfo", path);
    exec.install_hint = Text(map, "installHint", path);
    const std::string mode = Text(map, "interactiveMode", path);
    exec.needs_terminal = mode == "Always";
    if (!mode.empty() && mode != "Never" && mode != "IfAvailable" && mode != "Always") {
      Fail(map["interactiveMode"], absl::StrCat(path, ".interactiveMode"), "must be Never, IfAvailable or Always");
    }
    const YAML::Node args = List(map, "args", path);
    for (const YAML::Node& arg : args) exec.args.push_back(TextOf(arg, absl::StrCat(path, ".args")));
    const YAML::Node env = List(map, "env", path);
    for (const YAML::Node& entry : env) {
      const std::string env_path = absl::StrCat(path, ".env");
      if (!entry.IsMap())
        Fail(entry, env_path, "must be a list of names and values");
      else
        exec.env.emplace_back(Text(entry, "name", env_path), Text(entry, "value", env_path));
    }
    if (exec.command.empty()) Fail(map, path, "has no command");
    return exec;
  }

 private:
  const absl::string_view name_, folder_;
  absl::Status status_;
};

Kubeconfig::Cluster ReadCluster(Reader& reader, const YAML::Node& map, const std::string& path) {
  Kubeconfig::Cluster cluster;
  cluster.server = reader.Text(map, "server", path);
  cluster.tls_server_name = reader.Text(map, "tls-server-name", path);
  cluster.proxy_url = reader.Text(map, "proxy-url", path);
  cluster.insecure = reader.Bool(map, "insecure-skip-tls-verify", path);
  cluster.ca = reader.Pem(map, "certificate-authority", path);
  cluster.exec_config = reader.ExecExtension(map, path);
  return cluster;
}

Kubeconfig::User ReadUser(Reader& reader, const YAML::Node& map, const std::string& path) {
  Kubeconfig::User user;
  user.certificate = reader.Pem(map, "client-certificate", path);
  user.key = reader.Pem(map, "client-key", path);
  user.token = reader.Token(map, "token", path);
  user.token_file = reader.Path(map, "tokenFile", path);
  user.basic_auth = !reader.Text(map, "username", path).empty() || !reader.Text(map, "password", path).empty();
  user.auth_provider = map["auth-provider"].IsDefined() && !map["auth-provider"].IsNull();
  for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra"}) user.impersonation |= map[key].IsDefined() && !map[key].IsNull();
  if (map["exec"].IsDefined() && !map["exec"].IsNull()) {
    const std::string exec_path = path + ".exec";
    user.exec = reader.Exec(reader.Map(map, "exec", path), exec_path);
  }
  return user;
}

absl::StatusOr<Kubeconfig> Read(const YAML::Node& root, absl::string_view name, absl::string_view folder) {
  Reader reader(name, folder);
  Kubeconfig config;
  if (!root.IsMap()) return absl::InvalidArgumentError(absl::StrCat(name, ": is no kubeconfig: it must be a map"));
  const std::string kind = reader.Text(root, "kind", "");
  if (!kind.empty() && kind != "Config")
    return absl::InvalidArgumentError(absl::StrCat(name, ": is no kubeconfig: its kind is not Config"));
  config.current_context = reader.Text(root, "current-context", "");
  reader.Named(root, "clusters", "cluster", config.clusters,
               [&](const YAML::Node& map, const std::string& path) { return ReadCluster(reader, map, path); });
  reader.Named(root, "users", "user", config.users,
               [&](const YAML::Node& map, const std::string& path) { return ReadUser(reader, map, path); });
  reader.Named(root, "contexts", "context", config.contexts, [&](const YAML::Node& map, const std::string& path) {
    return Kubeconfig::Context{reader.Text(map, "cluster", path), reader.Text(map, "user", path), reader.Text(map, "namespace", path)};
  });
  if (!reader.status().ok()) return reader.status();
  return config;
}

// What `read` makes of the text's root.
template <class F>
auto OfYaml(absl::string_view text, absl::string_view name, const F& read) -> decltype(read(YAML::Node())) {
  if (text.size() > kMaxKubeconfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is longer than ", kMaxKubeconfigBytes, " bytes"));
  }
  try {
    return read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 0 : e.mark.line + 1;
    // Not the library's own text: it may quote what it read.
    return absl::InvalidArgumentError(absl::StrCat(name, ":", line, ": is no YAML"));
  }
}

// Nothing: the file is empty, or has blanks and remarks alone.
absl::StatusOr<std::optional<Kubeconfig>> ParseFile(absl::string_view text, absl::string_view path, absl::string_view folder) {
  return OfYaml(text, path, [&](const YAML::Node& root) -> absl::StatusOr<std::optional<Kubeconfig>> {
    if (root.IsNull()) return std::nullopt;
    FUSIONLLM_ASSIGN_OR_RETURN(Kubeconfig config, Read(root, path, folder));
    return config;
  });
}

}  // namespace

absl::StatusOr<Kubeconfig> ParseKubeconfig(absl::string_view text, absl::string_view name, absl::string_view folder) {
  return OfYaml(text, name, [&](const YAML::Node& root) { return Read(root, name, folder); });
}

absl::StatusOr<Kubeconfig> LoadKubeconfig(const std::vector<std::string>& paths) {
  Kubeconfig merged;
  std::string empty;
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxKubeconfigBytes);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return text.status();
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
    FUSIONLLM_ASSIGN_OR_RETURN(std::optional<Kubeconfig> config, ParseFile(*text, path, folder));
    if (!config.has_value()) {  // one that was touched, or emptied by a tool: kubectl goes on, too
      if (empty.empty()) empty = path;
      continue;
    }
    absl::StrAppend(&merged.files, merged.files.empty() ? "" : ":", path);
    merged.clusters.merge(config->clusters);
    merged.users.merge(config->users);
    merged.contexts.merge(config->contexts);
    if (merged.current_context.empty()) merged.current_context = config->current_context;
  }
  if (merged.files.empty()) {
    if (!empty.empty()) return absl::NotFoundError(absl::StrCat(empty, ": is empty: there is no kubeconfig in it"));
    return absl::NotFoundError(paths.empty() ? std::string("no kubeconfig is named")
                                             : absl::StrCat("there is no kubeconfig at ", paths[0]));
  }
  return merged;
}

std::vector<std::string> DefaultKubeconfigPaths() {
  const char* const listed = std::getenv("KUBECONFIG");
  if (listed != nullptr && *listed != '\0') return absl::StrSplit(listed, ':', absl::SkipEmpty());
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return {absl::StrCat(home, "/.kube/config")};
}

absl::StatusOr<Kubeconfig> LoadKubeconfigOrDefault(const std::string& file) {
  if (!file.empty()) return LoadKubeconfig({file});
  absl::StatusOr<Kubeconfig> config = LoadKubeconfig(DefaultKubeconfigPaths());
  if (!absl::IsNotFound(config.status())) return config;
  const char* const listed = std::getenv("KUBECONFIG");
  const bool named = listed != nullptr && *listed != '\0';
  return absl::NotFoundError(absl::StrCat(
      config.status().message(), named ? "; the path is that of KUBECONFIG" : "; KUBECONFIG, which could name another, is not set"));
}

absl::StatusOr<ClientConfig> ResolveContext(const Kubeconfig& config, absl::string_view context) {
  const std::string where = config.files.empty() ? "" : config.files + ": ";
  const std::string name(context.empty() ? absl::string_view(config.current_context) : context);
  if (name.empty()) return absl::NotFoundError(where + "the kubeconfig has no current context");
  const auto found = config.contexts.find(name);
  if (found == config.contexts.end()) return absl::NotFoundError(absl::StrCat(where, "the kubeconfig has no context \"", name, "\""));
  const auto cluster = config.clusters.find(found->second.cluster);
  if (cluster == config.clusters.end()) {
    return absl::NotFoundError(absl::StrCat(where, "the context \"", name, "\" names the cluster \"", found->second.cluster,
                                            "\", which the kubeconfig does not have"));
  }
  ClientConfig client;
  if (!where.empty()) client.cluster_entry = absl::StrCat(where, "cluster \"", cluster->first, "\"");
  client.server = cluster->second.server;
  client.tls_server_name = cluster->second.tls_server_name;
  client.proxy_url = cluster->second.proxy_url;
  client.insecure = cluster->second.insecure;
  client.ca = cluster->second.ca;
  client.exec_cluster_config = cluster->second.exec_config;
  client.ns = found->second.ns;
  if (found->second.user.empty()) return client;
  const auto user = config.users.find(found->second.user);
  if (user == config.users.end()) {
    return absl::NotFoundError(
        absl::StrCat(where, "the context \"", name, "\" names the user \"", found->second.user, "\", which the kubeconfig does not have"));
  }
  if (!where.empty()) client.user_entry = absl::StrCat(where, "user \"", user->first, "\"");
  client.certificate = user->second.certificate;
  client.key = user->second.key;
  client.token = user->second.token;
  client.token_file = user->second.token_file;
  client.exec = user->second.exec;
  client.basic_auth = user->second.basic_auth;
  client.auth_provider = user->second.auth_provider;
  client.impersonation = user->second.impersonation;
  return client;
}

}  // namespace fusionllm::kube
