#include "tests/monitoring/prometheus.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/http/curl_transport.h"

namespace fusionllm::monitoring {
namespace {

using nlohmann::json;

constexpr absl::Duration kPrometheusTimeout = absl::Minutes(2);

}  // namespace

std::string FindPrometheus() { return FindProgram("FUSIONLLM_PROMETHEUS", "prometheus"); }
std::string FindPromtool() { return FindProgram("FUSIONLLM_PROMTOOL", "promtool"); }

bool PrometheusIsRequired() {
  const char* const required = std::getenv("FUSIONLLM_REQUIRE_PROMETHEUS");
  return required != nullptr && *required != '\0';
}

Prometheus::Prometheus(const std::string& config) {
  const std::string file = folder_.Write("prometheus.yml", config);
  child_ = std::make_unique<Child>(FindPrometheus(), std::vector<std::string>{absl::StrCat("--config.file=", file),
                                                                              absl::StrCat("--storage.tsdb.path=", folder_ / "data"),
                                                                              "--web.listen-address=127.0.0.1:0", "--log.format=json"});
  std::string address;
  child_->WaitForLine(
      [&](const std::string& line) {
        const json entry = json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (!entry.is_object()) return false;
        const std::string message = entry.value("msg", "");
        // It asks for port 0 first ("Start listening") and tells what it got afterwards.
        if (message == "Listening on") address = entry.value("address", "");
        return absl::StrContains(message, "ready to receive web requests");
      },
      kPrometheusTimeout);
  EXPECT_FALSE(address.empty()) << "Prometheus did not start:\n" << Log();
  auto transport = kube::CurlTransport::Make({.server = absl::StrCat("http://", address.empty() ? "127.0.0.1:0" : address)});
  EXPECT_TRUE(transport.ok()) << transport.status();
  if (transport.ok()) transport_ = *std::move(transport);
}

json Prometheus::Get(const std::string& path) {
  const auto answer = transport_->Send({.target = absl::StrCat("/api/v1/", path)}, {.timeout = kPrometheusTimeout}, {});
  if (!answer.ok()) {
    ADD_FAILURE() << path << ": " << answer.status();
    return {};
  }
  json body = json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || body.value("status", "") != "success") {
    ADD_FAILURE() << path << ": HTTP " << answer->code << " " << answer->body;
    return {};
  }
  return body["data"];
}

json Prometheus::Query(const std::string& expression) {
  const json data = Get(absl::StrCat("query?query=", kube::PercentEncode(expression)));
  if (!data.is_object()) {
    ADD_FAILURE() << "in " << expression;
    return json::array();
  }
  EXPECT_EQ(data.value("resultType", ""), "vector") << expression;
  return data.value("resultType", "") == "vector" ? data["result"] : json::array();
}

std::vector<std::string> Prometheus::LabelValues(const std::string& selector, const std::string& label) {
  const json data = Get(absl::StrCat("label/", label, "/values?match[]=", kube::PercentEncode(selector)));
  return data.is_array() ? data.get<std::vector<std::string>>() : std::vector<std::string>();
}

}  // namespace fusionllm::monitoring
