# What `cmake --install` puts where: bin/ for programs, lib/ for our libraries, which find each other
# and LibTorch beside them. In the build tree CMake writes the folders of what a target links into
# it, LibTorch's among them, so that nothing needs LD_LIBRARY_PATH.
#
# The CUDA module is opened at run time, so that no target links it: who builds the server where
# there is a CUDA compiler wants the module too.

if(CASTOR_WITH_CUDA AND TARGET castor_cuda)
  add_dependencies(castor-server castor_cuda)
  install(TARGETS castor_cuda LIBRARY DESTINATION lib)
endif()
install(TARGETS castor-server castor castor_engine RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
set_target_properties(castor-server castor PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set_target_properties(castor_engine PROPERTIES INSTALL_RPATH "$ORIGIN")
