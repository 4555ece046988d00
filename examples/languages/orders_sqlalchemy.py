"""An order is delivered, and rated 48 hours later: with SQLAlchemy's ORM.  PGHOST and the
like say where the database is."""
import datetime

from sqlalchemy import Column, Integer, Text, create_engine, func, select
from sqlalchemy.orm import Session, declarative_base


class Order(declarative_base()):
    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)
    state = Column(Text)
    stars = Column(Integer)


def deliver(session, id):
    session.get(Order, id).state = "delivered"
    session.execute(select(func.delay_schedule(
        datetime.timedelta(hours=48), "UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL", id)))


def test_is_rated_after_two_days(engine):
    with Session(engine) as session:  # without commit(): all is rolled back
        deliver(session, 1)
        session.execute(select(func.delay_run_due(func.now() + datetime.timedelta(hours=48))))
        session.expire_all()
        assert session.get(Order, 1).stars == 5


engine = create_engine("postgresql+psycopg2://", future=True)
test_is_rated_after_two_days(engine)
with Session(engine) as session, session.begin():
    deliver(session, 2)
