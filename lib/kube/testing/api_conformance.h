// What every API server must do as our client sees it: the one in memory, the same behind sockets, and a real one. Instantiate with
//   INSTANTIATE_TEST_SUITE_P(InMemory, ApiConformance, ::testing::Values(ApiCase{"in_memory", [] { ... }}));
// and link `api_conformance`. Each test has a namespace of its own and leaves nothing behind. Time is that of the machine: tests wait for
// conditions, with a limit.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "lib/kube/client/api_client.h"
#include "lib/kube/testing/objects.h"

namespace fusionllm::kube::testing {

class ApiUnderTest {
 public:
  virtual ~ApiUnderTest() = default;
  virtual ApiClient& client() = 0;
  // Has the server forget the first versions. False if that cannot be asked of it.
  virtual bool ForgetHistory() { return false; }
};

struct ApiCase {
  std::string name;
  // Null when there is no such server here: the tests are skipped.
  std::function<std::unique_ptr<ApiUnderTest>()> make;
  std::string skipped_because = {};
};
inline std::ostream& operator<<(std::ostream& out, const ApiCase& api) { return out << api.name; }

class ApiConformance : public ::testing::TestWithParam<ApiCase> {
 protected:
  using Json = nlohmann::json;

  void SetUp() override;
  void TearDown() override;

  ApiClient& api() { return server_->client(); }
  ObjectKey Key(const std::string& name) const { return {ns_, name}; }
  // A ConfigMap with data {"k": value}.
  static Json ConfigMap(const std::string& name, const std::string& value, const Json& labels = Json::object());
  // One that no scheduler takes.
  static Json Pod(const std::string& name);
  Json CreateConfigMap(const std::string& name, const std::string& value, const Json& labels = Json::object());
  Json GetConfigMap(const std::string& name);
  absl::StatusOr<std::string> Apply(const std::string& manager, const Json& object, bool force = true);

  std::unique_ptr<ApiUnderTest> server_;
  std::string ns_;
};

}  // namespace fusionllm::kube::testing
