#include "lib/transport/inproc/inproc.h"

#include "lib/transport/testing/endpoint_conformance.h"

namespace fusionllm::transport::testing {
namespace {

class InprocCarrier : public Carrier {
 public:
  std::unique_ptr<Endpoint> Make(EndpointOptions options) override { return network_.MakeEndpoint(std::move(options)); }

 private:
  InprocNetwork network_;
};

INSTANTIATE_TEST_SUITE_P(Inproc, EndpointConformance,
                         ::testing::Values(CarrierCase{"inproc", [] { return std::make_unique<InprocCarrier>(); }}));

}  // namespace
}  // namespace fusionllm::transport::testing
