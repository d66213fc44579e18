// What every Endpoint must do, whatever carries it. An implementation instantiates the suite with its Carrier:
//   INSTANTIATE_TEST_SUITE_P(Inproc, EndpointConformance, ::testing::Values(CarrierCase{"inproc", [] { ... }}));
// and links `endpoint_conformance`.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "lib/transport/stream_endpoint.h"

namespace fusionllm::transport::testing {

// A network on which endpoints find each other by name. A second endpoint of the same name takes the place of the first.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual std::unique_ptr<Endpoint> Make(EndpointOptions options) = 0;
};

struct CarrierCase {
  std::string name;
  std::function<std::unique_ptr<Carrier>()> make;
};
inline std::ostream& operator<<(std::ostream& out, const CarrierCase& carrier) { return out << carrier.name; }

class EndpointConformance : public ::testing::TestWithParam<CarrierCase> {
 protected:
  // Small limits, so that a test fills them with little data.
  static EndpointOptions Options(std::string name);
  std::unique_ptr<Endpoint> Make(EndpointOptions options) { return carrier_->Make(std::move(options)); }
  std::unique_ptr<Endpoint> Make(std::string name) { return Make(Options(std::move(name))); }

  std::unique_ptr<Carrier> carrier_ = GetParam().make();
};

}  // namespace fusionllm::transport::testing
