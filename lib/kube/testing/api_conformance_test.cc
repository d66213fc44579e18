// Three servers, one suite. The third is the one that FUSIONLLM_TEST_KUBECONFIG names, any cluster where namespaces may be made.
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/kube/client/connect.h"
#include "lib/kube/testing/api_conformance.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_http_server.h"

namespace fusionllm::kube::testing {
namespace {

class InMemory : public ApiUnderTest {
 public:
  ApiClient& client() override { return client_; }
  bool ForgetHistory() override {
    server_.Compact();
    return true;
  }

 private:
  FakeApiServer server_{RealClock()};
  RestClient client_{{server_.NewTransport(), StaticCredentials({}), "fake", "default"}, {}, RealClock()};
};

class OverHttp : public ApiUnderTest {
 public:
  OverHttp() {
    ClientConfig config;
    config.server = http_.Url();
    auto access = OpenAccess(config, RealClock());
    EXPECT_TRUE(access.ok()) << access.status();
    client_ = std::make_unique<RestClient>(*std::move(access), RestClientOptions(), RealClock());
  }
  ApiClient& client() override { return *client_; }
  bool ForgetHistory() override {
    server_.Compact();
    return true;
  }

 private:
  FakeApiServer server_{RealClock()};
  FakeHttpServer http_{server_};
  std::unique_ptr<RestClient> client_;
};

class RealServer : public ApiUnderTest {
 public:
  explicit RealServer(std::unique_ptr<RestClient> client) : client_(std::move(client)) {}
  ApiClient& client() override { return *client_; }

 private:
  const std::unique_ptr<RestClient> client_;
};

std::unique_ptr<ApiUnderTest> TheRealServer() {
  const char* const kubeconfig = std::getenv("FUSIONLLM_TEST_KUBECONFIG");
  if (kubeconfig == nullptr || *kubeconfig == '\0') return nullptr;
  auto client = Connect({.kubeconfig = kubeconfig}, RealClock());
  EXPECT_TRUE(client.ok()) << client.status();
  return std::make_unique<RealServer>(*std::move(client));
}

INSTANTIATE_TEST_SUITE_P(Servers, ApiConformance,
                         ::testing::Values(ApiCase{"InMemory", [] { return std::make_unique<InMemory>(); }},
                                           ApiCase{"OverHttp", [] { return std::make_unique<OverHttp>(); }},
                                           ApiCase{"RealServer", TheRealServer, "FUSIONLLM_TEST_KUBECONFIG names no API server"}),
                         [](const ::testing::TestParamInfo<ApiCase>& info) { return info.param.name; });

}  // namespace
}  // namespace fusionllm::kube::testing
