//! A view, sent by what every container has.

/// For bash in the container of a view counter; it prints the answer.
pub(super) const POST_VIEW: &str = "exec 3<>/dev/tcp/127.0.0.1/7620; body='{\"videoId\":\"cats\",\"userId\":\"mia\",\"timestamp\":\"2026-11-25T08:00:00Z\"}'; \
                printf 'POST /v1/views HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\nconnection: close\\r\\n\
                content-length: %s\\r\\n\\r\\n%s' ${#body} \"$body\" >&3; cat <&3";
