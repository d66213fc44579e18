// Everything that reaching one API server takes, whatever it was read from.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube {

// The extension of a cluster, in kubeconfigs and elsewhere, that is for programs which print credentials.
inline constexpr char kExecExtension[] = "client.authentication.k8s.io/exec";

// PEM in memory, or the path of a file that holds it and may be renewed. At most one of the two.
struct PemSource {
  std::string data;
  std::string path;
  bool empty() const { return data.empty() && path.empty(); }
  bool operator==(const PemSource&) const = default;
};

// A program that prints credentials (client.authentication.k8s.io).
struct ExecConfig {
  std::string api_version;
  std::string command;
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;  // besides our own environment
  bool provide_cluster_info = false;
  bool needs_terminal = false;  // interactiveMode: Always
  std::string install_hint;
  bool operator==(const ExecConfig&) const = default;
};

struct ClientConfig {
  // Where it was read, for messages: "m.yaml: cluster \"paris\"", "m.yaml: user \"admin\""; empty: not from a file with such entries.
  std::string cluster_entry, user_entry;
  std::string server;
  std::string tls_server_name;
  bool insecure = false;
  std::string proxy_url;
  PemSource ca, certificate, key;
  std::string token;
  std::string token_file;  // goes before `token`
  std::optional<ExecConfig> exec;
  // JSON that a program which wants to know about the cluster gets besides: the cluster's kExecExtension.
  std::string exec_cluster_config;
  std::string ns;  // where objects without one belong; empty: "default"
  // Ways to say who we are that are not supported: to leave them out would make us somebody else.
  bool basic_auth = false, auth_provider = false, impersonation = false;
  bool operator==(const ClientConfig&) const = default;
};

// The same with the entry that it is about, where there is one, before it.
inline absl::Status OfEntry(const std::string& entry, const absl::Status& status) {
  return status.ok() || entry.empty() ? status : absl::Status(status.code(), absl::StrCat(entry, ": ", status.message()));
}

}  // namespace fusionllm::kube
