// The makers that table.cpp lists; each stands in the file of its command.
#pragma once

#include <memory>

#include "cli/command.hpp"

namespace tutti::cli {

std::unique_ptr<Command> make_up();
std::unique_ptr<Command> make_down();
std::unique_ptr<Command> make_local();
std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_submit();
std::unique_ptr<Command> make_jobs();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_explain();
std::unique_ptr<Command> make_logs();
std::unique_ptr<Command> make_wait();
std::unique_ptr<Command> make_cancel();
std::unique_ptr<Command> make_release();
std::unique_ptr<Command> make_status();
std::unique_ptr<Command> make_nodes();
std::unique_ptr<Command> make_queues();
std::unique_ptr<Command> make_users();
std::unique_ptr<Command> make_tokens();
std::unique_ptr<Command> make_whoami();
std::unique_ptr<Command> make_secret();
std::unique_ptr<Command> make_audit();
std::unique_ptr<Command> make_drain();
std::unique_ptr<Command> make_resume();
std::unique_ptr<Command> make_data();
std::unique_ptr<Command> make_checkpoint();
std::unique_ptr<Command> make_login();
std::unique_ptr<Command> make_logout();
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_engine();
std::unique_ptr<Command> make_gateway();
std::unique_ptr<Command> make_serve();
std::unique_ptr<Command> make_services();
std::unique_ptr<Command> make_chat();
std::unique_ptr<Command> make_generate();
std::unique_ptr<Command> make_model();
std::unique_ptr<Command> make_fabric();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_record();
std::unique_ptr<Command> make_sim();
std::unique_ptr<Command> make_api();
std::unique_ptr<Command> make_controller();
std::unique_ptr<Command> make_agent();
std::unique_ptr<Command> make_shim();
std::unique_ptr<Command> make_help();
std::unique_ptr<Command> make_version();

}  // namespace tutti::cli
