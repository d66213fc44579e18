// Endpoints inside one process, joined by bounded pipes: for tests, simulation and single-process runs.
//
// Frames are handed over without encoding, but are sequenced, checksummed and acknowledged as on any other carrier.
#pragma once

#include <memory>

#include "lib/transport/stream_endpoint.h"

namespace fusionllm::transport {

// A set of endpoints that can reach each other by name. Thread-safe.
class InprocNetwork {
 public:
  InprocNetwork();
  ~InprocNetwork();

  // The endpoint keeps the network's state alive. A second endpoint of the same name takes the name over.
  std::unique_ptr<StreamEndpoint> MakeEndpoint(EndpointOptions options);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace fusionllm::transport
