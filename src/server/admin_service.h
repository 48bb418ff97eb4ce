// dhisparse.v1.Admin.
#pragma once

#include "dhisparse/v1/admin.grpc.pb.h"
#include "server/serving_context.h"

namespace dhs {

class AdminService final : public wire::Admin::CallbackService {
 public:
  explicit AdminService(ServingContext& serving) : serving_(serving) {}

  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext* context,
                                     const wire::GetStateRequest* request,
                                     wire::State* response) override;
  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context,
                                   const wire::ReloadRequest* request,
                                   wire::ReloadResponse* response) override;

 private:
  ServingContext& serving_;
};

}  // namespace dhs
