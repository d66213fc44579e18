// An executor of another machine has its certificate renewed by the broker that enrolled it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"

namespace fusionllm::services {

// Where less than a third of its life is left: asks for another one for the same key, checks it and puts it in place of
// `directory`/NAME.pem. Blocks on the broker, 20 s at most, and on the file system. Errors: the broker's, and those of the files.
absl::Status RenewFromBroker(const std::string& directory, const std::string& name, v1::Broker::StubInterface& broker, absl::Time now);

}  // namespace fusionllm::services
