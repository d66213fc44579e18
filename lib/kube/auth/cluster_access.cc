#include "lib/kube/auth/cluster_access.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/exec_plugin.h"
#include "lib/kube/auth/small_file.h"
#include "lib/kube/auth/tls_source.h"
#include "lib/kube/http/curl_transport.h"
#include "lib/kube/http/server_url.h"

namespace fusionllm::kube {
namespace {

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// The server that the configuration names.
absl::StatusOr<ServerUrl> CheckConfig(const ClientConfig& config) {
  const auto wrong = [](const std::string& entry, absl::string_view what) { return OfEntry(entry, absl::InvalidArgumentError(what)); };
  const std::string& user = config.user_entry;
  if (config.basic_auth) return wrong(user, "user name and password are not supported: no API server takes them since 1.19");
  if (config.auth_provider) return wrong(user, "auth-provider is not supported: use exec, or a token");
  if (config.impersonation) return wrong(user, "impersonation (as, as-groups) is not supported");
  if (config.certificate.empty() != config.key.empty()) return wrong(user, "a client certificate needs its key, and a key its certificate");
  if (config.insecure && !config.ca.empty()) {
    return wrong(config.cluster_entry, "insecure-skip-tls-verify and certificate-authority contradict each other");
  }
  absl::StatusOr<ServerUrl> server = ParseServerUrl(config.server);
  if (!server.ok()) return wrong(config.cluster_entry, server.status().message());
  if (!server->https() && (!config.token.empty() || !config.token_file.empty() || config.exec.has_value())) {
    return wrong(config.cluster_entry, "a token is not sent over plain http: use https");
  }
  return server;
}

// Empty: it may be run.
std::string ExecRefusal(const ExecConfig& exec, const AccessOptions& options) {
  if (options.exec_rules.has_value()) return RefusalOf(exec, *options.exec_rules);
  if (options.exec_allowed.contains(exec.command)) return "";
  return absl::StrCat("exec would run ", exec.command, " here, which is not among the programs allowed");
}

absl::StatusOr<std::shared_ptr<CredentialSource>> Source(const ClientConfig& config, Clock& clock, const AccessOptions& options,
                                                         const ExecMetrics* metrics) {
  if (config.exec.has_value()) {
    if (const std::string refusal = ExecRefusal(*config.exec, options); !refusal.empty()) return absl::InvalidArgumentError(refusal);
    return MakeExecPlugin(*config.exec, config, clock, metrics);
  }
  if (!config.token_file.empty()) return std::make_shared<TokenFile>(config.token_file, clock);
  return StaticCredentials({.token = config.token});
}

bool IsHostName(absl::string_view host) {
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') return false;
  }
  return !host.empty();
}

}  // namespace

absl::StatusOr<ClusterAccess> OpenAccess(const ClientConfig& config, Clock& clock, const AccessOptions& options,
                                         const ExecMetrics* metrics) {
  FUSIONLLM_ASSIGN_OR_RETURN(const ServerUrl server, CheckConfig(config));
  ClusterAccess access;
  access.server = server.HostPort();
  access.ns = config.ns.empty() ? "default" : config.ns;
  absl::StatusOr<std::shared_ptr<CredentialSource>> source = Source(config, clock, options, metrics);
  if (!source.ok()) return OfEntry(config.user_entry, source.status());
  access.credentials = *std::move(source);
  auto tls = std::make_shared<TlsSource>(config.ca, config.certificate, config.key, access.credentials, clock);
  CurlTransportOptions transport = {.server = config.server,
                                    .tls_server_name = config.tls_server_name,
                                    .insecure = config.insecure,
                                    .proxy_url = config.proxy_url,
                                    .tls = [tls] { return tls->Get(); }};
  absl::StatusOr<std::unique_ptr<CurlTransport>> made = CurlTransport::Make(std::move(transport));
  if (!made.ok()) return OfEntry(config.cluster_entry, made.status());
  access.transport = *std::move(made);
  return access;
}

absl::StatusOr<ClientConfig> InClusterConfig(const std::string& root) {
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr || *host == '\0' || *port == '\0') {
    return absl::NotFoundError("not in a Pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  const std::string folder = root + kServiceAccount;
  ClientConfig config;
  const bool ipv6 = absl::StrContains(host, ":");
  config.server = absl::StrCat("https://", ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
  config.token_file = folder + "/token";
  config.ca.path = folder + "/ca.crt";
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string token, ReadSmallFile(config.token_file, 64 << 10));
  if (const absl::StatusOr<std::string> ns = ReadSmallFile(folder + "/namespace", 1024); ns.ok()) {
    config.ns = std::string(absl::StripAsciiWhitespace(*ns));
  }
  return config;
}

std::vector<ConfigRefusal> CheckUntrustedConfig(const ClientConfig& config, const AccessOptions& options) {
  std::vector<ConfigRefusal> refusals;
  const auto refuse = [&](const char* reason, std::string message) { refusals.push_back({reason, std::move(message)}); };
  if (!config.token_file.empty()) refuse("TokenFileNotAllowed", "tokenFile would read a file of this machine: put the token itself there");
  if (!config.ca.path.empty()) {
    refuse("CertificateAuthorityFileNotAllowed", "certificate-authority would read a file of this machine: use certificate-authority-data");
  }
  if (!config.certificate.path.empty() || !config.key.path.empty()) {
    refuse("ClientCertificateFileNotAllowed",
           "client-certificate and client-key would read files of this machine: use client-certificate-data and client-key-data");
  }
  if (config.insecure) refuse("InsecureSkipVerifyNotAllowed", "insecure-skip-tls-verify would let anybody pose as the cluster");
  if (config.basic_auth) refuse("BasicAuthNotAllowed", "user name and password are not supported");
  if (config.auth_provider) refuse("AuthProviderNotAllowed", "auth-provider is not supported");
  if (config.impersonation) refuse("ImpersonationNotAllowed", "impersonation (as, as-groups) is not supported");
  if (config.exec.has_value()) {
    if (std::string refusal = ExecRefusal(*config.exec, options); !refusal.empty()) refuse("ExecNotAllowed", std::move(refusal));
  }
  const absl::StatusOr<ServerUrl> server = ParseServerUrl(config.server);
  if (!server.ok()) {
    refuse("ServerNotAllowed", std::string(server.status().message()));
  } else if (!server->https()) {
    refuse("ServerNotAllowed", "the server must be https");
  } else if (!IsHostName(server->host) && !absl::StartsWith(server->host, "[")) {
    refuse("ServerNotAllowed", "the server's host is no host name");
  }
  return refusals;
}

}  // namespace fusionllm::kube
