# Start of the container: host keys that outlive it, an SSH server on port 2222, and the service as user 'robot'.
set -eu
mkdir -p /robot/ssh
[ -f /robot/ssh/host_key ] || ssh-keygen -q -t ed25519 -N '' -f /robot/ssh/host_key
install -d -o robot -g robot -m 700 /home/robot/.ssh
install -o robot -g robot -m 600 /keys/authorized_keys /home/robot/.ssh/authorized_keys
/usr/sbin/sshd -p 2222 -h /robot/ssh/host_key -o PasswordAuthentication=no -o PermitRootLogin=no \
    -o SetEnv="GANTRY_ROBOT_HOME=/robot PATH=/usr/local/bin:/usr/bin:/bin"
exec setpriv --reuid=robot --regid=robot --init-groups sh -c '
    [ -f /robot/robot.yaml ] || gantry onboard setup --robot "$ROBOT" --backend "$BACKEND"
    exec gantry onboard service'
