// Messages of broker.proto, declared: for headers that only name them. A header whose class holds messages, or implements a service,
// includes the generated one.
#pragma once

namespace google::protobuf {
template <typename Element>
class RepeatedPtrField;
}  // namespace google::protobuf

namespace fusionllm::v1 {

class Assign;
class BrokerMessage;
class CalibrationReport;
class EnrollRequest;
class EnrollResponse;
class ExecutorMessage;
class Hello;
class LinkBytes;
class LinkReport;
class PeerAddress;
class Probe;
class RenewResponse;
class ShardReport;
class SiteFile;
class StageEnded;
class StageReady;
class StageTimes;
class StepReport;
class Welcome;

}  // namespace fusionllm::v1
