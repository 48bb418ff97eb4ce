// One Generate call: the gRPC stream on one side, the engine's sink on the other.
//
// Threads: gRPC's threads call On...(), one worker calls run(), the engine's output thread calls
// on_...(). Nothing here blocks any of them: output goes to an outbox of which one message at a
// time is being written; what arrives meanwhile is joined to the message that waits.
//
// Lifetime: the call keeps itself alive until gRPC's OnDone; the engine's reference may go earlier
// or later. The gRPC call is finished only when the engine is through with the request (or never
// got it), so no output can arrive after OnDone.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dhisparse/engine.h"
#include "dhisparse/sync.h"
#include "server/output_assembler.h"
#include "server/serving_context.h"

namespace dhs {

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public TokenSink,
                           public ActiveCall,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // A waiting message takes more text and tokens up to this size; clients commonly refuse messages
  // of more than 4 MiB.
  static constexpr size_t kMaxJoinedBytes = size_t{256} << 10;
  // The reactor of a new call; `request` lives until the call is done.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* start(ServingContext& serving,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void on_tokens(const std::vector<TokenOutput>& tokens) override;
  void on_finished(const Finished& finished) override;

  void abort(const absl::Status& status) override;

 private:
  struct Outgoing {
    wire::GenerateResponse response;
    size_t num_bytes = 0;
  };

  GenerateCall(ServingContext& serving, absl::Time deadline);

  void run(const grpc::ByteBuffer& request);
  absl::Status submit(ValidRequest request);
  void end_before_submit(const absl::Status& status);
  void end_in_engine(FinishReason reason);
  void give_up(const absl::Status& status);
  void pump();

  void append(const OutputDelta& delta) DHS_REQUIRES(mutex_);
  void enqueue(wire::GenerateResponse response) DHS_REQUIRES(mutex_);
  void discard_output(const absl::Status& status) DHS_REQUIRES(mutex_);

  absl::Status final_status(const Finished& finished) const;
  wire::GenerateResponse finished_message(const Finished& finished) const;

  ServingContext& serving_;
  const absl::Time arrived_ = absl::Now();
  const absl::Time deadline_;
  std::shared_ptr<GenerateCall> self_;  // until OnDone

  // Set by run() before the engine gets the request, constant afterwards.
  std::string request_id_;
  std::vector<std::string> stops_;
  bool wants_logprobs_ = false;

  // Output thread only.
  std::optional<OutputAssembler> assembler_;
  int64_t num_tokens_received_ = 0;
  int64_t num_tokens_given_ = 0;
  absl::Time first_token_at_;
  absl::Time last_token_at_;

  // Whoever has set is_writing_ under the lock owns it until OnWriteDone.
  grpc::ByteBuffer writing_;

  Mutex mutex_;
  std::optional<RequestId> engine_id_ DHS_GUARDED_BY(mutex_);
  std::optional<FinishReason> end_wanted_ DHS_GUARDED_BY(mutex_);
  std::deque<Outgoing> outbox_ DHS_GUARDED_BY(mutex_);
  size_t outbox_bytes_ DHS_GUARDED_BY(mutex_) = 0;
  bool is_writing_ DHS_GUARDED_BY(mutex_) = false;
  absl::Time writing_since_ DHS_GUARDED_BY(mutex_);
  bool is_paused_ DHS_GUARDED_BY(mutex_) = false;  // for as long as the client reads nothing
  bool is_finishing_ DHS_GUARDED_BY(mutex_) = false;
  // Nothing more will come; finish when the outbox is empty.
  bool has_ended_ DHS_GUARDED_BY(mutex_) = false;
  // What the client gets in the end, unless output was dropped: then given_up_.
  absl::Status status_ DHS_GUARDED_BY(mutex_);
  std::optional<absl::Status> given_up_ DHS_GUARDED_BY(mutex_);
};

}  // namespace dhs
