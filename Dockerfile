# wgsteer-server alone: no shell, no libc, nothing to update but the program.
# Built by `make image`, which puts the static binary and an empty folder into bin/.
FROM scratch
COPY bin/wgsteer-server /wgsteer-server
# A new volume takes its owner and mode from this folder.
COPY --chown=65532:65532 bin/state /var/lib/wgsteer
USER 65532:65532
VOLUME /var/lib/wgsteer
EXPOSE 5000 1883
HEALTHCHECK --interval=10s --timeout=3s CMD ["/wgsteer-server", "health"]
ENTRYPOINT ["/wgsteer-server"]
